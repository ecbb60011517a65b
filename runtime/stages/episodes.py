"""Episodes: the user's async function, once a trajectory, and one row a call in its agent's table.

A call's randomness is `key(run seed, "episode", variant, sample, trajectory, agent, hash of the
prompt, ordinal among identical calls)`. Rows are ordered by (sample, trajectory, call), `call`
counting that agent's calls in the order in which they were made. Neither depends on which call is
answered first: see `trajectory.py`.
"""

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from flowgraph.ir import graph as ir
from flowgraph.ir.types import RecordType
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.stages.agents import Agent, Generation
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.faults import blamed, declared, defined
from flowgraph.runtime.stages.records import maker
from flowgraph.runtime.stages.rewards import Rewards
from flowgraph.runtime.stages.tables import Played, figures, played, table
from flowgraph.runtime.stages.trajectory import Speaker, Trajectory

__all__ = ["Agent", "Episodes", "Generation", "Outcome", "Rewards"]

T = TypeVar("T")


class _Late(Exception):
    """A trajectory ran out of time and its sample is to be dropped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What became of the samples of some units.

    tables: by agent, a batch a unit. figures: (sum, count) by name. dropped: reason by sample.
    """

    tables: Mapping[str, list[Batch]]
    figures: Mapping[str, tuple[float, float]]
    dropped: Mapping[int, str]


class Episodes:
    """Plays an `episodes` stage.

    function: the user's, awaited as `function(task, *agents, **params)`: agents by name where its
    parameters are called like them, else by position in the stage's order. tokenizers: by agent.
    types: of the tables wanted, by agent. learners: agents that learn from the calls they make. At
    most `in_flight` samples are played at once, in order.
    """

    def __init__(
        self,
        stage: ir.Stage,
        function: Callable[..., Any],
        *,
        agents: Sequence[ir.Agent],
        tokenizers: Mapping[str, Any],
        types: Mapping[str, RecordType],
        learners: Collection[str] = (),
        seed: int,
    ) -> None:
        self._stage = stage
        self._function = function
        self._agents = agents
        self._tokenizers = tokenizers
        self._types = types
        self._learners = learners
        self._seed = seed
        self._make = maker(function)
        self._names = _parameters(function, [agent.name for agent in agents])
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    async def run(
        self, batches: Sequence[Batch], port: CallPort, *, variant: int, params: Mapping[str, Any]
    ) -> Outcome:
        """Plays all samples of all units. Raises StageFailed for one that fails."""
        rows = [(unit, row) for unit, batch in enumerate(batches) for row in batch.to_rows()]
        plays = [self._sample(row, port, variant, params) for _, row in rows]
        results = await _all(plays)
        units: list[list[Played]] = [[] for _ in batches]
        dropped: dict[int, str] = {}
        for (unit, row), result in zip(rows, results, strict=True):
            if isinstance(result, str):
                dropped[row["sample"]] = result
            else:
                units[unit].extend(result)
        tables = {
            agent: [table(agent, type, unit) for unit in units]
            for agent, type in self._types.items()
        }
        sums = figures([episode for unit in units for episode in unit])
        return Outcome(tables=tables, figures=sums, dropped=dropped)

    async def _sample(
        self, row: dict[str, Any], port: CallPort, variant: int, params: Mapping[str, Any]
    ) -> list[Played] | str:
        """All trajectories of one sample, or why it was dropped; an evaluation plays one."""
        count = 1 if variant else int(self._stage.attributes["trajectories"])
        async with self._turnstile():
            try:
                return await _all(
                    [self._trajectory(row, index, port, variant, params) for index in range(count)]
                )
            except _Late as late:
                return str(late)

    async def _trajectory(
        self,
        row: dict[str, Any],
        index: int,
        port: CallPort,
        variant: int,
        params: Mapping[str, Any],
    ) -> Played:
        sample = int(row["sample"])
        trajectory = Trajectory(port, (self._seed, "episode", variant, sample, index))
        timeout = float(self._stage.attributes.get("timeout_s", 300.0))
        try:
            async with asyncio.timeout(timeout):
                with blamed(self._stage, sample):
                    given = await self._play(row, trajectory, variant, params)
        except TimeoutError:  # never the user's own: that is a StageFailed by now
            raise self._late(sample, index, timeout) from None
        finally:
            trajectory.close()
        names = [agent.name for agent in self._agents]
        try:
            if not isinstance(given, Rewards):
                raise ValueError(f"{type(given).__name__} instead of fg.Rewards")
            return played(sample, index, trajectory.answered(), given, names)
        except (ValueError, TypeError) as problem:
            what = f"'{self._function.__name__}' returned {problem}"
            raise StageFailed(
                self._stage.name, sample, what, at=defined(self._function)
            ) from problem

    async def _play(
        self, row: dict[str, Any], trajectory: Trajectory, variant: int, params: Mapping[str, Any]
    ) -> Any:
        speakers = [
            Speaker(
                agent,
                self._tokenizers.get(agent.name),
                trajectory,
                learns=variant == 0 and agent.name in self._learners,
            )
            for agent in self._agents
        ]
        task = self._make(row)
        if self._names is None:
            return await self._function(task, *speakers, **params)
        named = dict(zip(self._names, speakers, strict=True))
        return await self._function(task, **named, **params)

    def _late(self, sample: int, index: int, timeout: float) -> Exception:
        what = f"trajectory {index} took longer than {timeout:g} s (timeout_s)"
        if self._stage.attributes.get("on_timeout", "fail") == "drop":
            return _Late(f"stage '{self._stage.name}': {what}")
        return StageFailed(
            self._stage.name,
            sample,
            what,
            at=declared(self._stage),
            hint='a larger timeout_s, or on_timeout="drop"',
        )

    def _turnstile(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            tasks = int(self._stage.attributes.get("in_flight", 4))
            self._gate = (loop, asyncio.Semaphore(tasks))
        return self._gate[1]


def _parameters(function: Callable[..., Any], agents: Sequence[str]) -> list[str] | None:
    """The function's parameters named like the agents (`-` as `_`), or None when not all are."""
    names = [agent.replace("-", "_") for agent in agents]
    found = inspect.signature(function).parameters
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return names if all(n in found and found[n].kind in kinds for n in names) else None


async def _all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order. A failure cancels the rest; of several the first in order is raised."""
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup:
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error from error.__cause__
        raise
    return [task.result() for task in tasks]
