"""What a pass left behind, as text that can be read again.

    # after infer-rates
    # games.solver.rate = 24; because 16 trajectories x 1.5 calls expected
    # rates = {"games.solver": "24", tasks: "1"}
    graph "marl" ... { ... }

The graph is the whole text: what else the passes know is a function of it, of the cluster and of
what was measured, and stands above it in comments. After the last pass the text is the plan.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import print_text
from flowgraph.passes.state import State

FACTS = ("rates", "tokens", "counts")
"""Maps of a state that are shown by name."""

PARTS = {"groups": "group", "rooms": "room", "tasks": "task", "channels": "channel"}
"""Parts of the plan dialect that a state may have already, with their keyword."""


def state_text(name: str, before: State, after: State, whole: Graph | Plan) -> str:
    """The text after pass `name`. whole: what is printed below the comments."""
    lines = comments(name, before, after, whole)
    return "".join(f"# {line}\n" for line in lines) + print_text(whole)


def comments(name: str, before: State, after: State, whole: Graph | Plan) -> list[str]:
    """What pass `name` decided and found out, one line each.

    A plan holds the decisions and parts itself, so that of one there is the pass's name only.
    """
    lines = [f"after {name}"]
    if isinstance(whole, Graph):
        lines += [*_decided(before, after), *_found(before, after), *_made(before, after)]
    return lines


def _decided(before: State, after: State) -> Iterator[str]:
    """Decisions may hold text of the user's, line breaks included."""
    for decision in after.decisions[len(before.decisions) :]:
        yield " ".join(str(decision).split())


def _found(before: State, after: State) -> Iterator[str]:
    from flowgraph.ir.printer import print_value

    for name in FACTS:
        found: Mapping[str, Any] = getattr(after, name)
        if found and found != getattr(before, name):
            plain = {key: _plain(value) for key, value in found.items()}
            yield f"{name} = {print_value(plain)}"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Fraction) else value


def _made(before: State, after: State) -> Iterator[str]:
    from flowgraph.ir.plain import to_plain
    from flowgraph.ir.printer import print_entity

    for name, keyword in PARTS.items():
        made = getattr(after, name)
        if made != getattr(before, name):
            for part in made:
                yield from print_entity(keyword, to_plain(part)).splitlines()
