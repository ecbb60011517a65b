"""A world in which some samples end whoever works on them, and its runs of several attempts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from flowgraph.runtime.messages import Message, Run
from flowgraph.runtime.orchestrator.events import Abort, Commit, Death, WorkerDied
from flowgraph.runtime.orchestrator.quarantine import Quarantine
from flowgraph.runtime.progress import RunResult
from tests.runtime.orchestrator.world import World

Deadly = Callable[[Run], bool]
"""Whether the work ends the process that has it."""


def of_samples(*samples: int, task: str = "", variant: int = 0) -> Deadly:
    """Work on any of these in the task (any, when not said); of an evaluation if variant > 0."""

    def deadly(run: Run) -> bool:
        here = run.variant == variant and task in ("", run.task)
        return here and any(sample in samples for unit in run.samples for sample in unit)

    return deadly


HARMLESS = of_samples()


@dataclass
class DeadlyWorld(World):
    """deadly work is not answered, nor is anything that its process is sent afterwards.

    death: how such a process ends. aside: samples that are put aside. carried: restarts made
    before. solo: samples of each piece of work that a process was lost with and nothing else.
    """

    deadly: Deadly = HARMLESS
    death: Death = Death.CRASHED
    quarantine: int = 0
    retries: int = 1
    aside: tuple[int, ...] = ()
    carried: int = 0
    doomed: list[str] = field(default_factory=list)
    solo: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        options = replace(self.state.options, quarantine=self.quarantine, retries=self.retries)
        self.state.options = options
        self.state.quarantine = Quarantine(self.plan.graph, self.aside)
        self.state.restarts = self.carried
        self._others, self.kill = self.kill, self._victim

    def _victim(self, number: int) -> str | None:
        """One of the doomed, now or later; or whom others kill."""
        if self.doomed and (not self.waiting or not self.choose(3)):
            return self.doomed[0]
        return self._others(number)

    def lose(self, worker: str) -> None:
        lost = self.state.workers[worker]
        death = Death.KILLED
        if worker in self.doomed:
            self.doomed.remove(worker)
            death = self.death
        if lost.trial is not None:
            (item,) = lost.items
            self.solo.append(self.state.items[item].samples or lost.trial.samples)
        event = WorkerDied(
            worker=worker,
            how="is gone",
            log="log",
            incarnation=lost.incarnation,
            death=death,
            trace="trace",
            at="user.py:7",
        )
        self.feed(event)

    def _answer(self, worker: str, message: Message) -> None:
        if worker in self.doomed:
            return
        if isinstance(message, Run) and self.deadly(message):
            self.doomed.append(worker)
            return
        super()._answer(worker, message)


@dataclass
class Attempts:
    """As `supervise.py` does it: on from the last checkpoint without what was put aside.

    make: a world that goes on from the commit without those samples.
    """

    make: Callable[[Commit | None, tuple[int, ...]], DeadlyWorld]
    trained: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    ended: Abort | None = None
    solo: list[tuple[int, ...]] = field(default_factory=list)

    def run(self) -> RunResult | None:
        """To the end; None when an attempt ended that puts nothing aside."""
        commit: Commit | None = None
        while True:
            world = self.make(commit, tuple(self.aside))
            while world.result is None and world.aborted is None:
                world.run_some(1)
            self.trained += world.trained
            self.solo += world.solo
            commit = world.commits[-1] if world.commits else commit
            if world.result is not None:
                return world.result
            self.ended = world.aborted
            assert self.ended is not None
            if self.ended.lost or self.ended.sample is None:
                return None
            assert self.ended.training
            self.aside.append(self.ended.sample)
            done = commit.step if commit else 0
            self.trained = [entry for entry in self.trained if entry[0] < done]
