"""Where in the user's files something was declared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's file. `file` is as the user would type it; `line` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


UNKNOWN = Location("<unknown>", 0)
