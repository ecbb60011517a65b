"""Eight samples of an encoder's epoch, two a step, made four at a time; stopped wherever asked."""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.orchestrator.events import Commit
from flowgraph.runtime.progress import StepFinished
from tests.passes.graphs import filtered, laptop, vlm
from tests.runtime.orchestrator.world import Kill, World, first, nobody

IDS = 8
BATCH = 2


@cache
def plan_of(*, filters: bool = False) -> Plan:
    graph = (filtered if filters else vlm)(BATCH)
    stages = tuple(
        replace(stage, attributes={**stage.attributes, "at_end": "drop"})
        if stage.op == "source"
        else stage
        for stage in graph.stages
    )
    return compile_graph(replace(graph, stages=stages), laptop(), {"schedule.ahead": 1})


@dataclass
class Epoch:
    """One pass over the ids, in as many attempts as it takes. steps: told, in order."""

    plan: Plan
    trained: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    attempts: int = 0
    events: int = 0
    commit: Commit | None = None
    _world: World | None = None

    def attempt(self, kill: Kill = nobody) -> World:
        """The next one, from the last checkpoint; what was done after that does not count."""
        self.attempts += 1
        done = self.commit.step if self.commit else 0
        self.trained = [entry for entry in self.trained if entry[0] < done]
        self.steps = [step for step in self.steps if step < done]
        return World(
            self.plan,
            first,
            steps=100,
            exact=True,
            source_size=IDS,
            keep=lambda sample: sample != 3,
            kill=lambda number: kill(self.events + number),
            checkpoint_every=1,
            checkpoint=self.commit,
        )

    def take(self, world: World) -> None:
        """Keep what the attempt has trained and saved."""
        self.trained += world.trained
        self.steps += [p.step for p in world.progress if isinstance(p, StepFinished)]
        self.commit = world.commits[-1] if world.commits else self.commit

    def run(self, kill: Kill = nobody) -> World:
        """To the end, whoever is killed."""
        while True:
            world = self.attempt(kill)
            while world.result is None and world.aborted is None:
                world.run_some(1)
                self.events += 1
            self.take(world)
            if world.result is not None:
                return world

    def ids(self, task: str = "train-lm") -> Counter[int]:
        """How often each sample was trained by the task."""
        return Counter(s for _, name, samples in self.trained for s in samples if name == task)
