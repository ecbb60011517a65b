"""Tokens of the text form, each with its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.location import Location


class ParseError(ConfigurationError):
    """Mend the text: it is not the text form of a graph or plan. The message shows the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """kind: `name`, `number`, `text` (a quoted string) or the punctuation itself; `end` at last.

    start: offset in the source.
    """

    kind: str
    text: str
    start: int


_SKIPPED = r"(?:[ \t\r\n]++|\#[^\n]*+)*+"  # possessive, so that it is tried in one way only
_TOKEN = re.compile(
    _SKIPPED
    + r"""(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
  | (?P<number>-?(?:inf|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))
  | (?P<text>"(?:[^"\\\n]++|\\.)*+")
  | (?P<mark>[(){}<>\[\],:=*@])
  | (?P<end>\Z)
    )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the file it came from."""

    text: str
    file: str = "<text>"

    def fault(self, start: int, what: str, hint: str | None = None) -> ParseError:
        """An error that shows the line and points at the place."""
        line = self.text.count("\n", 0, start) + 1
        begin = self.text.rfind("\n", 0, start) + 1
        shown = self.text[begin:].partition("\n")[0].rstrip()
        column = start - begin
        # A long line is shown around the place only.
        left = max(0, column - 60)
        pointer = " " * (column - left) + "^"
        return ParseError(
            f"column {column + 1}: {what}\n  | {shown[left : left + 100]}\n  | {pointer}",
            at=Location(self.file, line),
            hint=hint,
        )

    def tokens(self) -> Iterator[Token]:
        """All tokens and an `end`. Raises ParseError at the first that is none."""
        text, position = self.text, 0
        while match := _TOKEN.match(text, position):
            kind = match.lastgroup or ""
            found = match[kind]
            start, position = match.span(kind)
            yield Token(kind=found if kind == "mark" else kind, text=found, start=start)
            if kind == "end":
                return
        skipped = re.compile(_SKIPPED).match(text, position)
        position = skipped.end() if skipped else position
        raise self.fault(position, f"no token starts with {text[position]!r}")
