"""Runs a plan on this machine: attempts, each from the last checkpoint, until one ends the run.

Guarantee: whatever way it is left (end, failure, Ctrl-C, an exception of ours), no process, socket
or shared memory of the run is left.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from flowgraph.ir.plan import Plan
from flowgraph.runtime.checkpoint import latest, sweep
from flowgraph.runtime.garbage import seldom_collected
from flowgraph.runtime.launch.local import LocalLauncher
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import (
    Observer,
    PassedOver,
    Progress,
    PutAside,
    Restarted,
    RunResult,
)
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.scratch import scratch_folder
from flowgraph.runtime.shell import RunAborted, RunInterrupted, Shell
from flowgraph.runtime.transport.refusals import Refusals

Launch = Callable[[], LocalLauncher]


def run_plan(
    plan: Plan, options: RunOptions, observe: Observer, launch: Launch = LocalLauncher
) -> RunResult:
    """Run the plan's processes to the end. launch: makes what starts them, once.

    Raises RunAborted, RunInterrupted, or ConfigurationError for a run directory that exists.
    """
    with _interruptible() as stop, seldom_collected():
        directory = RunDirectory.create(options, plan)
        return _supervised(plan, options, observe, directory, stop, launch)


def resume_run(run_dir: str, observe: Observer, plan: Plan | None = None) -> RunResult:
    """Go on with a run that ended early, to the steps first asked for.

    From its last checkpoint, or from step 0 without one; a finished run's result again. plan:
    another one of the same graph, with other workers, which takes the old one's place. Raises what
    `run_plan` does, and ConfigurationError for what is no run directory.
    """
    directory = RunDirectory.reopen(Path(run_dir))
    finished = directory.result()
    if finished is not None:
        directory.close()
        return finished
    if plan is not None:
        directory.replace_plan(plan)
    directory.outcome("running")
    with _interruptible() as stop, seldom_collected():
        return _supervised(
            directory.plan, directory.options, observe, directory, stop, LocalLauncher
        )


def _supervised(
    plan: Plan,
    options: RunOptions,
    observe: Observer,
    directory: RunDirectory,
    stop: list[bool],
    launch: Launch,
) -> RunResult:
    """Attempts until one ends the run: who cannot be replaced alone is, from the last checkpoint.

    Restarts of both kinds count: an attempt tells of those that it made itself. One that ends by
    putting a sample aside gives back those that it spent: the sample may have killed many.
    """
    refused = Refusals()
    restarts = spent = 0  # made, and held against the options' limit
    cause = ""

    def watch(progress: Progress) -> None:
        nonlocal restarts, spent
        if isinstance(progress, Restarted):
            restarts, spent = restarts + 1, progress.restart
        observe(progress)

    try:
        with ExitStack() as stack:
            launcher: LocalLauncher | None = None
            while True:
                checkpoint, damaged = _newest(directory, observe)
                directory.journal.attempt(directory.rewind(checkpoint), cause or damaged)
                launcher = launcher or stack.enter_context(launch())
                try:
                    before = spent
                    result = _attempt(
                        plan, options, watch, directory, refused, checkpoint, stop, spent, launcher
                    )
                except RunAborted as error:
                    if _put_aside(error, directory, observe):
                        cause, spent = error.what, before
                        continue
                    if not error.lost or spent >= options.restarts:
                        raise
                    restarts, spent = restarts + 1, spent + 1
                    cause = error.what
                    directory.journal.restart(0.0, "run", cause)
                    observe(Restarted(cause=error.what, restart=spent, of=options.restarts))
                else:
                    directory.finished(result, refused=refused.to_plain(), restarts=restarts)
                    return result
    except BaseException as error:
        state = "interrupted" if isinstance(error, RunInterrupted) else "failed"
        directory.ended_early(error, state, refused=refused.to_plain(), restarts=restarts)
        raise
    finally:
        directory.close()


def _newest(directory: RunDirectory, observe: Observer) -> tuple[Path | None, str]:
    """The checkpoint to go on from, and what is wrong with those that were passed over."""
    damaged: list[str] = []

    def tell(checkpoint: str, problem: str) -> None:
        damaged.append(f"checkpoint {checkpoint} is damaged: {problem}")
        observe(PassedOver(checkpoint=checkpoint, problem=problem))

    sweep(directory.checkpoints)
    return latest(directory.checkpoints, tell), "; ".join(damaged)


def _put_aside(error: RunAborted, directory: RunDirectory, observe: Observer) -> bool:
    """Whether the run may go on without the sample that failed, which is written down then."""
    sample, most = error.sample, directory.options.quarantine
    if sample is None or not error.training or error.lost:
        return False
    before = directory.journal.quarantined()
    if len(before) >= most or sample in before:
        if most:
            error.add_note(f"{len(before)} samples were put aside already (--quarantine {most})")
        return False
    place = "" if error.at is None else str(error.at)
    directory.journal.quarantine(sample, error.stage, error.cause, place, error.trace)
    directory.journal.restart(0.0, "run", f"sample {sample} was put aside")
    observe(
        PutAside(
            sample=sample, stage=error.stage, cause=error.cause, count=len(before) + 1, of=most
        )
    )
    return True


def _attempt(
    plan: Plan,
    options: RunOptions,
    observe: Observer,
    directory: RunDirectory,
    refused: Refusals,
    checkpoint: Path | None,
    stop: list[bool],
    restarts: int,
    launcher: LocalLauncher,
) -> RunResult:
    """With new workers of a launcher that stays; whoever is left of them is gone when this ends."""
    with scratch_folder() as scratch, _emptied(launcher):
        return Shell(
            plan,
            options,
            observe,
            directory,
            scratch,
            launcher,
            refused,
            checkpoint,
            stop,
            restarts,
        ).run()


@contextmanager
def _emptied(launcher: LocalLauncher) -> Iterator[None]:
    """Where an attempt is aborted another may follow it; after any other end none does."""
    try:
        yield
    except RunAborted:
        launcher.clear()
        raise
    except BaseException:
        launcher.close()
        raise


@contextmanager
def _interruptible() -> Iterator[list[bool]]:
    """SIGINT, SIGTERM and a closed terminal set the flag instead of raising amid something.

    All the while: a second Ctrl-C must not break off the ending of processes. `nohup` stays obeyed.
    """
    stop = [False]

    def ask(_signal: int, _frame: FrameType | None) -> None:
        stop[0] = True

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
