"""Paragraphs, labelled paragraphs and tables of a terminal's width."""

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 100
LABEL = 13
LEAST_CELL = 30
"""Columns that a table's last cell has at least."""


def wrapped(text: str) -> list[str]:
    """Lines of a section; long names stay whole."""
    return textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False, break_long_words=False)


def labelled(label: str, text: str) -> list[str]:
    """What is told of a part under a label, its own lines below one another."""
    return textwrap.wrap(
        text,
        WIDTH - 2,
        initial_indent=f"  {label:<{LABEL}}",
        subsequent_indent=" " * (LABEL + 2),
        break_on_hyphens=False,
        break_long_words=False,
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> Iterator[str]:
    """right: columns of numbers. A last cell that is too long goes on below itself."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(LEAST_CELL, WIDTH - 2 - before)
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        last = [row[-1]]
        if len(row[-1]) > room:
            last = textwrap.wrap(row[-1], room, break_on_hyphens=False, break_long_words=False)
            cells[-1] = last[0]
        yield "  ".join(cells).rstrip()
        yield from (" " * before + text for text in last[1:])
