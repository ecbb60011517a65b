"""How a run ends early: what the user's code, a worker or the pool did.

All are `RunFailed` (exit code 1): the graph was fine, something that ran was not.
"""

from pathlib import Path

from flowgraph.ir.errors import RunFailed
from flowgraph.ir.location import Location


class RecordMismatch(RunFailed):
    """A value does not fit its field's declared type.

    You get it when a source or a function returned a record with a missing field, another dtype or
    other dims than declared. You do not get it for values that fit after a safe cast (int to float,
    float64 to float32). `field` is the declared field, `sample` the row's sample id or None.
    """

    def __init__(self, problem: str, *, field: str, row: int, sample: int | None = None) -> None:
        whose = f"row {row}" if sample is None else f"row {row} (sample {sample})"
        super().__init__(f"field '{field}' of {whose}: {problem}")
        self.problem = problem
        self.field = field
        self.row = row
        self.sample = sample


class BlockTooLarge(RunFailed):
    """One block is larger than the whole pool segment: waiting for space would never end."""


class StaleHandle(RunFailed):
    """A handle names a block that was freed (and maybe written anew) since it was handed out.

    You get it when a record is read after its lease ended: our bug, or a late message.
    """


class OwnerGone(RunFailed):
    """The process that owns a pool segment is gone, and this process had not mapped it before."""


class CannotWrite(RunFailed):
    """A file of the run directory cannot be written: the disk is full, or its quota is used up.

    What was written before stays whole: the run can be resumed once there is room.
    """

    def __init__(self, file: Path | str, error: Exception) -> None:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        super().__init__(
            f"cannot write {file}: {why}",
            hint="make room on the disk, then go on with flowgraph resume RUN_DIR",
        )
        self.file = str(file)


class FunctionUnavailable(RunFailed):
    """A function that the plan names cannot be imported here.

    You get it when a file moved, its name is taken, its top level raises, or the function is gone.
    """

    def __init__(self, what: str, *, trace: str = "", hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.trace = trace


class StageFailed(RunFailed):
    """The user's function of a stage raised, or returned something that does not fit.

    `stage` names it; `sample` is the sample's id, or None when the failure is not of one sample;
    `evaluating`: it was an evaluation's work. `cause` is one line; `trace` the traceback's text
    from the user's frame on. `at` is the line of the user's file that raised, or the stage's own.
    """

    def __init__(
        self,
        stage: str,
        sample: int | None,
        cause: str,
        *,
        trace: str = "",
        at: Location | None = None,
        hint: str | None = None,
    ) -> None:
        whose = "" if sample is None else f", sample {sample}"
        super().__init__(f"stage '{stage}'{whose}: {cause}", at=at, hint=hint)
        self.stage = stage
        self.evaluating = False
        self.sample = sample
        self.cause = cause
        self.trace = trace
