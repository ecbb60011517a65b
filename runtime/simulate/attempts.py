"""A run as its shell drives it: attempts, each from the last checkpoint, until one ends it."""

from dataclasses import dataclass, field

from flowgraph.runtime.orchestrator.events import Commit
from flowgraph.runtime.progress import Progress, StepFinished
from flowgraph.runtime.simulate.timeline import Mark, Timeline
from flowgraph.runtime.simulate.world import ORCHESTRATOR, Setting, World


@dataclass(slots=True)
class Attempts:
    """worlds: all attempts, in order. progress: what was told, without what was done again."""

    timeline: Timeline
    worlds: list[World] = field(default_factory=list)
    progress: list[tuple[float, Progress]] = field(default_factory=list)

    @property
    def last(self) -> World:
        return self.worlds[-1]

    @property
    def restarts(self) -> int:
        """Of both kinds: workers replaced alone, and returns to a checkpoint."""
        return self.last.state.restarts


def run_attempts(setting: Setting) -> Attempts:
    """Run the plan in virtual time, replacing lost workers as often as the options allow."""
    names = [
        (f"{group.name}-{index}", group.name)
        for group in setting.plan.groups
        for index in range(group.replicas)
    ]
    attempts = Attempts(Timeline({ORCHESTRATOR: ORCHESTRATOR, **dict(names)}))
    world = World(setting, attempts.timeline)
    checkpoint: Commit | None = None
    while True:
        attempts.worlds.append(world)
        world.run()
        attempts.progress += world.progress
        checkpoint = world.commits[-1] if world.commits else checkpoint
        lost = world.abort is not None and world.abort.lost
        if not lost or attempts.restarts >= setting.options.restarts:
            return attempts
        done = checkpoint.step if checkpoint else 0
        attempts.progress = [told for told in attempts.progress if _stays(told[1], done)]
        now = world.clock.now
        attempts.timeline.marks.append(Mark(time=now, what=f"restart from step {done}"))
        trained = [entry for entry in world.ledger.entries if entry[1] < done]
        world = World(
            setting,
            attempts.timeline,
            began=now,
            checkpoint=checkpoint,
            trained=trained,
            restarts=attempts.restarts + 1,
        )


def _stays(progress: Progress, done: int) -> bool:
    """Steps after the checkpoint are taken, and told, again."""
    return not isinstance(progress, StepFinished) or progress.step < done
