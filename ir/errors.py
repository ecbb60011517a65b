"""The error vocabulary. A class says what the reader must do; a message what, where, what to do.

The command line prints `str(error)` in a few lines and exits with `exit_code`; a traceback is shown
only with `-v`.
"""

from typing import ClassVar

from flowgraph.ir.location import Location


class FlowgraphError(Exception):
    """Base of all errors that a user may meet.

    `what` names the fault, `at` the user's line, `hint` the smallest change that would pass.
    `node` is the start of the entity's line in the text form (`stage "games"`), `term` the part of
    it that is wrong (`trajectories`): what a picture of the fault underlines.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        at: Location | None = None,
        hint: str | None = None,
        node: str = "",
        term: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.hint = hint
        self.node = node
        self.term = term

    def __str__(self) -> str:
        lines = [self.what]
        if self.at is not None:
            lines.insert(0, f"{self.at}:")
        if self.hint:
            lines.append(f"try: {self.hint}")
        return "\n  ".join(lines)


class GraphError(FlowgraphError):
    """Mend the graph: a stage, stream, module or function in it is wrong."""

    exit_code = 2


class ConfigurationError(FlowgraphError):
    """Mend the command line, a cluster file, a plan file or the run directory."""

    exit_code = 2


class PlanError(FlowgraphError):
    """The graph cannot run on this cluster as asked; the message has the arithmetic."""

    exit_code = 2


class RunFailed(FlowgraphError):
    """The run ended early: a worker was lost or the user's code raised. Look at the named log."""

    exit_code = 1


class InternalError(FlowgraphError):
    """Our bug: please report it with the message."""

    exit_code = 70
