"""Which line of the user's is running, and refusals that name it."""

import os
import sys

from flowgraph.ir.errors import GraphError
from flowgraph.ir.location import UNKNOWN, Location

# Unresolved on purpose: frames carry the path that the package was imported by.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line() -> Location:
    """The innermost running line outside this package, or `UNKNOWN`.

    Generated code (`<string>`, frozen importers) has no line that a user could go to: skipped.
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", _PACKAGE)):
            return Location(shown(file), frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return UNKNOWN


def shown(file: str) -> str:
    """The file as its user would type it: relative to the working folder when it lies in there."""
    path = os.path.abspath(file)
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def refuse(what: str, *, hint: str | None = None, at: Location | None = None) -> GraphError:
    """The error to raise for a mistake in the user's graph; `at` is the running line by default."""
    return GraphError(what, at=user_line() if at is None else at, hint=hint)
