"""Runs a host task: its stages in order over one item's units.

Guarantees: the result is a function of the plan, the seed and the item alone; each unit is computed
by itself; the user's code is found by name once, when the executor is made. Raises StageFailed,
naming stage and sample, for whatever the user's code does wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowgraph.ir.errors import InternalError
from flowgraph.ir.graph import FunctionRef, Graph, Stage
from flowgraph.ir.index import agent_of, index
from flowgraph.ir.plan import Plan, Task
from flowgraph.runtime import functions
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.failures import FunctionUnavailable
from flowgraph.runtime.item import Item, members
from flowgraph.runtime.loose import joined
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.episodes import Episodes
from flowgraph.runtime.stages.faults import blamed, failure
from flowgraph.runtime.stages.operators import (
    Credit,
    Filter,
    Given,
    Map,
    Operator,
    Play,
    Reshape,
    Sink,
    Source,
    Units,
    Unnest,
    Work,
    tabled_agents,
)
from flowgraph.runtime.stages.sources import Reader, order_seed, reader
from flowgraph.runtime.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostResult:
    """What an item came to.

    made: the task's output streams, a batch a unit, with the columns that their readers read; loose
    where nothing in the task has read them. metrics: (sum, count) by name, among them
    `reward/<agent>`, the mean over a trajectory's calls, a trajectory counting once. kept: of a
    task before membership, the sample ids that passed its filters, in the item's order.
    dropped: (sample, reason) of samples that left the run.
    """

    made: Mapping[str, Given]
    metrics: Mapping[str, tuple[float, float]]
    kept: tuple[int, ...] = ()
    dropped: tuple[tuple[int, str], ...] = ()

    @property
    def outputs(self) -> Mapping[str, list[Batch]]:
        """The same, joined; anew at every look."""
        return {name: [joined(one) for one in batches] for name, batches in self.made.items()}


class HostTask:
    """The executor of one host task in one process; keep it, since sources and imports cost."""

    def __init__(self, plan: Plan, task: Task, *, exact: bool, seed: int) -> None:
        self._graph = plan.graph
        self._topology = Topology(plan)
        self._task = task
        self._exact = exact
        self._seed = seed
        self._readers: dict[tuple[str, int], Reader] = {}
        stages = [self._graph.stage(name) for name in task.stages]
        self._stages = [(stage, self._operator(stage)) for stage in stages]

    async def run(self, item: Item, port: CallPort) -> HostResult:
        """Raises StageFailed. May be called again while earlier items wait for their calls."""
        work = Work(item, port)
        streams: dict[str, Given] = {
            name: [members(b, s) for b, s in zip(batches, item.samples, strict=True)]
            for name, batches in item.inputs.items()
        }
        for stage, operator in self._stages:
            if isinstance(operator, Unnest):
                given: Sequence[Given] = [operator.items(streams[stage.inputs[0]])]
            else:
                given = await operator.run(work, [_read(streams, name) for name in stage.inputs])
            streams.update(zip(stage.outputs, given, strict=True))
        return HostResult(
            made={name: self._sent(name, streams[name]) for name in self._task.outputs},
            metrics=work.figures,
            kept=() if self._task.gated else _kept(work),
            dropped=tuple(sorted(work.dropped.items())),
        )

    def _sent(self, stream: str, batches: Given) -> Given:
        """The stream's batches without the columns that nobody can read."""
        columns = self._topology.columns(stream)
        if columns == self._graph.stream(stream).type.names:
            return batches
        return [batch.select(columns) for batch in batches]

    def source_size(self, variant: int) -> int | None:
        """Samples an epoch of the source that a variant reads here; None without a source.

        -1 when not known: for an iterable that loops, whose size nobody needs. One that does not
        loop is read to its end once.
        """
        source = next((stage for stage, _ in self._stages if stage.op == "source"), None)
        return None if source is None else self._size(source, variant)

    def _size(self, stage: Stage, variant: int) -> int:
        with blamed(stage, None):
            found = self._reader(stage, variant)
            if found.size < 0 and stage.attributes.get("at_end", "loop") != "loop":
                found.measure()
            return found.size

    def _operator(self, stage: Stage) -> Operator:
        if stage.op == "unnest":
            return Unnest(stage, self._graph)
        if stage.op in ("group", "join"):
            return Reshape(stage, self._graph)
        if stage.function is None or stage.op not in (
            "source",
            "map",
            "filter",
            "sink",
            "episodes",
        ):
            raise InternalError(f"stage '{stage.name}': {stage.op} does not run in a host task")
        function, params = self._load(stage, stage.function), dict(stage.function.params)
        types = [self._graph.stream(name).type for name in stage.outputs]
        if stage.op == "source":
            return Source(stage, types[0], partial(self._reader, stage))
        if stage.op == "filter":
            return Filter(stage, types[0], function, params)
        if stage.op == "sink":
            return Sink(stage, function, params)
        if stage.op == "episodes":
            return self._play(stage, function)
        if stage.attributes.get("credit", False):
            return Credit(stage, function, params)
        return Map(stage, types[0], function, params)

    def _play(self, stage: Stage, function: Callable[..., Any]) -> Operator:
        agents = [self._graph.agent(name) for name in stage.agents]
        tokenizers = {
            agent.name: self._load(stage, agent.tokenizer)(**agent.tokenizer.params)
            for agent in agents
            if agent.tokenizer is not None
        }
        types = {
            agent: self._graph.stream(stream).type
            for stream, agent in zip(stage.outputs, tabled_agents(stage), strict=True)
        }
        episodes = Episodes(
            stage,
            function,
            agents=agents,
            tokenizers=tokenizers,
            types=types,
            learners=_learners(self._graph, stage),
            seed=self._seed,
        )
        return Play(stage, episodes, partial(self._params, stage))

    def _params(self, stage: Stage, variant: int) -> dict[str, Any]:
        """An episodes stage's parameters, some replaced by an evaluation of it."""
        assert stage.function is not None
        params = dict(stage.function.params)
        evaluate = self._evaluate(variant)
        if evaluate is not None and evaluate.attributes["of"] == stage.name:
            params.update(evaluate.attributes.get("overrides", {}))
        return params

    def _reader(self, stage: Stage, variant: int) -> Reader:
        if (stage.name, variant) not in self._readers:
            ref = self._source_of(stage, variant)
            make = partial(self._load(stage, ref), **ref.params)
            with blamed(stage, None):
                self._readers[stage.name, variant] = reader(
                    make,
                    loop=stage.attributes.get("at_end", "loop") == "loop",
                    shuffle=bool(stage.attributes.get("shuffle", False)),
                    seed=order_seed(self._seed, int(stage.attributes.get("seed", 0))),
                )
        return self._readers[stage.name, variant]

    def _source_of(self, stage: Stage, variant: int) -> FunctionRef:
        """The source's own function, or the one that an evaluation reads in its place."""
        assert stage.function is not None
        evaluate = self._evaluate(variant)
        given = evaluate.attributes.get("source") if evaluate is not None else None
        return FunctionRef(**given) if given else stage.function

    def _evaluate(self, variant: int) -> Stage | None:
        return self._graph.by_op("evaluate")[variant - 1] if variant else None

    def _load(self, stage: Stage, ref: FunctionRef) -> Callable[..., Any]:
        try:
            return functions.load(ref, self._graph.root, exact=self._exact)
        except FunctionUnavailable as error:
            raise failure(stage, None, error) from error


def _learners(graph: Graph, games: Stage) -> frozenset[str]:
    """Agents whose calls some loss weighs by what came of them, as policy gradients do."""
    at = index(graph)
    learners: set[str] = set()
    for stage in graph.by_op("train"):
        if not {"advantage", "behaviour_logprobs"} & set(stage.attributes.get("needs", ())):
            continue
        stream = stage.inputs[0]
        while (made := at.producer(stream)) and made.op != "episodes" and made.inputs:
            stream = made.inputs[0]
        if made == games:
            learners.add(agent_of(games, stream))
    return frozenset(learners)


def _read(streams: dict[str, Given], name: str) -> Units:
    """A stream's batches, joined once for all stages that read them."""
    batches = [joined(batch) for batch in streams[name]]
    streams[name] = batches
    return batches


def _kept(work: Work) -> tuple[int, ...]:
    samples: Sequence[int] = [sample for unit in work.item.samples for sample in unit]
    return tuple(s for s in samples if work.passed is None or s in work.passed)
