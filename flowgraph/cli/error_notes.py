"""What the command line adds to a compiler's error: a picture of the place, the cluster file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flowgraph.ir.errors import FlowgraphError, PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan


@contextmanager
def error_notes(shown: Callable[[], Graph | Plan], cluster: str | None = None) -> Iterator[None]:
    """Errors from inside bring along the printed graph around their place.

    shown: the last legal graph. cluster: the file that a PlanError is about.
    """
    try:
        yield
    except FlowgraphError as error:
        if error.node:
            from flowgraph.ir.diagnostics import picture  # printing loads more than compiling

            lines = picture(error, shown())
            if lines:
                error.add_note("\n  ".join(lines))
        if cluster and isinstance(error, PlanError):
            error.add_note(f"cluster file: {cluster}")
        raise
