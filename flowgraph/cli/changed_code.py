"""Whether the code that a plan names is still the code it was compiled from; imports none of it."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowgraph.ir.graph import FunctionRef, Graph


@dataclass(frozen=True, slots=True)
class Change:
    """A function's file that differs from what the plan recorded, or is gone."""

    function: str
    file: str
    gone: bool

    def __str__(self) -> str:
        what = "is not there any more" if self.gone else "changed since the plan was compiled"
        return f"{self.file} ({self.function}) {what}"


def changes(graph: Graph) -> list[Change]:
    """One for each file that changed, with the first function of it that the graph uses."""
    found: dict[str, Change] = {}
    for ref in _functions(graph):
        if not ref.path and not ref.digest:
            continue  # nothing was recorded that could differ
        file = _file(ref, graph.root)
        if file is None:
            found.setdefault(ref.module, Change(str(ref), f"module '{ref.module}'", gone=True))
        elif not file.is_file():
            found.setdefault(str(file), Change(str(ref), str(file), gone=True))
        elif ref.digest and _digest(file) != ref.digest:
            found.setdefault(str(file), Change(str(ref), str(file), gone=False))
    return list(found.values())


def _functions(graph: Graph) -> Iterator[FunctionRef]:
    for module in graph.modules:
        yield module.factory
    for agent in graph.agents:
        if agent.tokenizer is not None:
            yield agent.tokenizer
    for stage in graph.stages:
        if stage.function is not None:
            yield stage.function
        source: Mapping[str, Any] = stage.attributes.get("source") or {}
        if source:
            yield FunctionRef(**source)


def _file(ref: FunctionRef, root: str) -> Path | None:
    """Where workers would import it from; None when nothing of that name would be found."""
    if ref.path:
        return Path(root, ref.path)
    origin = _origin(ref.module)
    return Path(origin) if origin else None


def _origin(module: str) -> str | None:
    """As `importlib.util.find_spec(module).origin`, which would import the module's parents."""
    where: Any = None
    origin: str | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        specs = (finder.find_spec(name, where, None) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            return None
        origin, where = spec.origin, spec.submodule_search_locations
    return origin


def _digest(file: Path) -> str:
    import xxhash

    return xxhash.xxh3_128_hexdigest(file.read_bytes())
