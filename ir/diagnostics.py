"""A fault as a picture: what it says, and the printed graph with the place underlined."""

from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import print_text

AROUND = 2
"""Lines of the printed graph shown before and after the place."""


def render(error: FlowgraphError, shown: Graph | Plan) -> str:
    """The error's own lines, then the few lines of the printed graph around its node.

    The term of the error is underlined if the node's lines have it, else the node's name. Without
    a node, or with one that the graph does not have, the error's lines alone.
    """
    picture = _picture(error, print_text(shown).splitlines())
    return "\n".join([str(error), *(f"  | {line}" for line in picture)])


def _picture(error: FlowgraphError, lines: list[str]) -> list[str]:
    if not error.node:
        return []
    # The last one, since of two things of one name the second one is at fault.
    found = [i for i, line in enumerate(lines) if f"{line.strip()} ".startswith(f"{error.node} ")]
    if not found:
        return []
    first = found[-1]
    last = _end_of(lines, first)
    marked = next(
        (i for i in range(first, last + 1) if error.term and error.term in _body(error, lines[i])),
        first,
    )
    term = error.term if error.term and error.term in _body(error, lines[marked]) else error.node
    start = lines[marked].rindex(term) if term == error.term else lines[marked].index(term)
    underline = " " * start + "^" * len(term)
    return [
        *lines[max(0, first - AROUND) : marked + 1],
        underline,
        *lines[marked + 1 : min(len(lines), last + 1 + AROUND)],
    ]


def _body(error: FlowgraphError, line: str) -> str:
    """The line without the node's own name, which a term may be a part of."""
    return line.replace(error.node, " " * len(error.node), 1)


def _end_of(lines: list[str], first: int) -> int:
    """Index of the last line of the entity that starts at `first`: deeper lines belong to it."""
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first
    while last + 1 < len(lines):
        following = lines[last + 1]
        if len(following) - len(following.lstrip()) < indent + 4:
            break
        last += 1
    return last
