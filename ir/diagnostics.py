"""A fault as a picture: what it says, and the printed graph with the place underlined."""

import re

from flowgraph.ir.data import PlainError
from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import print_text

AROUND = 2
"""Lines of the printed graph shown before and after the place."""

LONGEST = 100
"""Letters of a line that are shown; a longer one is cut where the place is not."""

BEHIND = 16
"""Letters that are shown behind the place in a line that is cut."""


def render(error: FlowgraphError, shown: Graph | Plan) -> str:
    """The error's own lines, then the few lines of the printed graph around its node.

    The term of the error is underlined if the node's lines have it, else the node's name. Without
    a node, or with one that the graph does not have, the error's lines alone.
    """
    return "\n".join([str(error), *(f"  {line}" for line in picture(error, shown))])


def picture(error: FlowgraphError, shown: Graph | Plan) -> list[str]:
    """The lines around the error's node, each after a bar; none where `render` shows none.

    A graph that holds more than plain data has no printed form: there is none for it either.
    """
    if not error.node:
        return []
    try:
        lines = print_text(shown).splitlines()
    except PlainError:  # the fault may be that the graph holds what is no plain data
        return []
    # The last one, since of two things of one name the second one is at fault.
    found = [i for i, line in enumerate(lines) if f"{line.strip()} ".startswith(f"{error.node} ")]
    if not found:
        return []
    first = found[-1]
    last = _end_of(lines, first)
    place = _place(error, lines[first : last + 1])
    line, start, length = place if place else (0, lines[first].index(error.node), len(error.node))
    marked = first + line
    around = [
        *(_cut(line) for line in lines[max(0, first - AROUND) : marked]),
        *_marked(lines[marked], start, length),
        *(_cut(line) for line in lines[marked + 1 : min(len(lines), last + 1 + AROUND)]),
    ]
    return [f"| {line}".rstrip() for line in around]


def _place(error: FlowgraphError, lines: list[str]) -> tuple[int, int, int] | None:
    """(line, column, length) of the error's term in its node: as a whole word if there is one."""
    if not error.term:
        return None
    term = re.escape(error.term)
    for pattern in (rf"(?<![\w.-]){term}(?![\w.-])", term):
        for i, line in enumerate(lines):
            # The node's own name may hold the term, which is then not meant.
            body = line.replace(error.node, " " * len(error.node), 1)
            found = list(re.finditer(pattern, body))
            if found:
                return i, found[-1].start(), len(error.term)
    return None


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..."


def _marked(line: str, start: int, length: int) -> tuple[str, str]:
    """The line, cut so that the place is seen, and what underlines it."""
    if len(line) <= LONGEST:
        return line, " " * start + "^" * length
    width = LONGEST - 8
    length = min(length, width - BEHIND)
    left = max(0, min(start, start + length + BEHIND - width, len(line) - width))
    before = "... " if left else ""
    after = " ..." if left + width < len(line) else ""
    underline = " " * (len(before) + start - left) + "^" * length
    return f"{before}{line[left : left + width]}{after}", underline


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
