"""How a broken rule is told: the thing, what it expects, what it got, and what to change."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Agent, Module, Stage, Stream
from flowgraph.ir.index import Index
from flowgraph.ir.location import UNKNOWN

Faults = Iterator[GraphError]
GraphRule = Callable[[Index], Faults]
StageRule = Callable[[Index, Stage], Faults]

Declared = Module | Agent | Stage | Stream


def fault(
    thing: Declared, expects: str, got: str, hint: str | None = None, *, term: str = ""
) -> GraphError:
    """`stage 'x': expects ..., got ...` at the thing's line."""
    return told(thing, f"expects {expects}, got {got}", hint, term=term)


def told(thing: Declared, what: str, hint: str | None = None, *, term: str = "") -> GraphError:
    """`stage 'x': <what>` at the thing's line."""
    kind = type(thing).__name__.lower()
    return GraphError(
        f"{kind} {thing.name!r}: {what}",
        at=None if thing.at == UNKNOWN else thing.at,
        hint=hint,
        node=f'{kind} "{thing.name}"',
        term=term,
    )


def nearest(name: str, among: Iterable[str]) -> str | None:
    """A hint that names what was probably meant, and what else there is."""
    names = list(dict.fromkeys(among))
    if not names:
        return None
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    others = [repr(other) for other in names if other != near]
    shown = ", ".join(others[:7]) + (", ..." if len(others) > 7 else "")
    return f"{near!r}" + (f" (there is also {shown})" if others else " (there is no other)")


def repeated(names: Iterable[str]) -> list[str]:
    """Names that come more than once, each once, in the order of their first."""
    return [name for name, count in Counter(names).items() if count > 1]
