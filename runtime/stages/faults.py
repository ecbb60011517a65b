"""Turns whatever the user's code raised into one StageFailed that points at the user's line."""

import asyncio
import bdb
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.graph import Stage
from flowgraph.ir.location import UNKNOWN, Location
from flowgraph.runtime.failures import FunctionUnavailable, RecordMismatch, StageFailed

DEBUG_HINT = "flowgraph run ... --reference runs your functions where a debugger can be used"

_OURS = Path(__file__).resolve().parents[1]  # the runtime's own folder


@contextmanager
def blamed(stage: Stage, sample: int | None) -> Iterator[None]:
    """What is raised inside becomes a StageFailed of this stage and sample."""
    try:
        yield
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise  # by us: its episode has ended
        raise failure(stage, sample, error) from error
    except KeyboardInterrupt as error:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise  # somebody pressed Ctrl-C
        raise failure(stage, sample, error) from error
    except (Exception, SystemExit) as error:  # sys.exit() in a stage is a mistake like any other
        raise failure(stage, sample, error) from error


class NoDebugger(FlowgraphError):
    """`breakpoint()` was called in a worker, where nobody could answer the debugger."""


def refuse_breakpoints() -> None:
    """Make `breakpoint()` an error with a hint, unless the user has set another debugger for it."""

    def refuse(*_: object, **__: object) -> None:
        raise NoDebugger("breakpoint() in a worker, which has no terminal", hint=DEBUG_HINT)

    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = refuse


@contextmanager
def in_variant(variant: int) -> Iterator[None]:
    """A StageFailed that is raised inside says whether it was an evaluation's. variant: 0: not."""
    try:
        yield
    except StageFailed as error:
        error.evaluating = variant > 0
        raise


def failure(stage: Stage, sample: int | None, error: BaseException) -> StageFailed:
    """The StageFailed for an exception; one that is a StageFailed already stays as it is."""
    if isinstance(error, StageFailed):
        return error
    frames = _users_frames(error.__traceback__)
    cause = error.what if isinstance(error, FlowgraphError) else _one_line(error)
    at = _place(frames) if frames is not None else None
    if isinstance(error, FunctionUnavailable):
        return StageFailed(
            stage.name, sample, cause, trace=error.trace, at=declared(stage), hint=error.hint
        )
    trace = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    hint = error.hint if isinstance(error, FlowgraphError) else None
    if isinstance(error, bdb.BdbQuit):
        cause, hint = f"a debugger in a worker reads nothing ({cause})", DEBUG_HINT
    return StageFailed(stage.name, sample, cause, trace=trace, at=at or declared(stage), hint=hint)


def mismatch(stage: Stage, samples: Sequence[int], error: RecordMismatch) -> StageFailed:
    """A record that the stage's function gave does not fit the stream's type."""
    sample = samples[error.row] if error.row < len(samples) else None
    what = f"returned a record whose field '{error.field}' {_tail(error.problem)}"
    return StageFailed(stage.name, sample, what, at=declared(stage))


def users_line(frames: Sequence[tuple[str, int]]) -> Location | None:
    """The first of the frames (file, line; the innermost first) that is in the user's own files."""
    return next(
        (
            Location(_typed(file), line)
            for file, line in frames
            if _is_users(file) and not _is_library(file)
        ),
        None,
    )


def declared(stage: Stage) -> Location | None:
    """The line where the user declared the stage, when known."""
    return None if stage.at == UNKNOWN else stage.at


def defined(function: Callable[..., object]) -> Location | None:
    """The line where the function is defined, when known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Location(_typed(code.co_filename), code.co_firstlineno) if code else None


def _is_cancelled() -> bool:
    """Whether the running task was asked to end; else the user's code raised CancelledError."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: nobody could have asked
        return False
    return task is not None and task.cancelling() > 0


def _tail(problem: str) -> str:
    verbs = ("is ", "has ", "expects ")
    return problem if problem.startswith(verbs) else f"is wrong: {problem}"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is neither ours nor the event loop's."""
    while trace is not None and not _is_users(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _place(trace: TracebackType) -> Location:
    """The innermost frame in the user's own files; library frames below it are skipped."""
    first = trace
    place = Location(_typed(first.tb_frame.f_code.co_filename), first.tb_lineno)
    step: TracebackType | None = trace
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if _is_users(name) and not _is_library(name):
            place = Location(_typed(name), step.tb_lineno)
        step = step.tb_next
    return place


def _is_users(file: str) -> bool:
    path = Path(file).resolve()
    return _OURS not in path.parents and path.parent.name != "asyncio" and path.is_file()


def _is_library(file: str) -> bool:
    """In site-packages or the standard library: where an error surfaces, not where it was made."""
    parts = Path(file).resolve().parts
    return "site-packages" in parts or os.path.dirname(os.__file__) in str(Path(file).resolve())


def _typed(file: str) -> str:
    """As the user would type it: relative to the working folder when the file lies below it."""
    path = Path(file).resolve()
    here = Path.cwd()
    return str(path.relative_to(here)) if here in path.parents else str(path)
