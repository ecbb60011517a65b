"""One class a kind of host stage: from batches to batches, a unit at a time.

A unit is computed alone, so that its result does not depend on which units came in one item.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.types import SAMPLE, RecordType
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.item import Item
from flowgraph.runtime.loose import LooseBatch, Made
from flowgraph.runtime.stages import reshape
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.carried import beside, from_records, without
from flowgraph.runtime.stages.credit import add_advantage
from flowgraph.runtime.stages.episodes import Episodes
from flowgraph.runtime.stages.faults import blamed, failure
from flowgraph.runtime.stages.records import batch_of, columns, maker
from flowgraph.runtime.stages.settled import Wanted, memory_of, settled, settled_columns
from flowgraph.runtime.stages.sources import Reader

Units = Sequence[Batch]
"""A stream's batches, aligned with the item's units."""

Given = Sequence[Made]
"""What a stage made of them. Loose columns refer to nothing that anybody could change."""


@dataclass(slots=True)
class Work:
    """One item on its way through the stages, and what they note about it.

    passed: sample ids that every filter so far let through, or None before the first filter.
    """

    item: Item
    port: CallPort
    figures: dict[str, tuple[float, float]] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    passed: set[int] | None = None


class Operator(Protocol):
    """A stage that can be run: batches of its input streams in, of its output streams out."""

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]: ...


class Source:
    """Reads the unit's sample ids. `reader_of` gives the reader of a variant."""

    def __init__(self, stage: Stage, type: RecordType, reader_of: Callable[[int], Reader]) -> None:
        self._stage = stage
        self._type = type
        self._reader_of = reader_of
        self._wanted = Wanted.of(without((SAMPLE.name,), type))

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        reader = self._reader_of(work.item.variant)
        return [[self._read(reader, samples) for samples in work.item.samples]]

    def _read(self, reader: Reader, samples: Sequence[int]) -> LooseBatch:
        records = []
        for sample in samples:
            with blamed(self._stage, sample):
                records.append(settled(self._wanted, reader.read(sample)))
        key = {SAMPLE.name: Column("int64", np.array(samples, np.int64))}
        return from_records(self._stage, self._type, records, key)


class Map:
    """One record to one record, or a batch of columns to one of the same number of rows.

    Fields that it `keeps` never pass through the function: they are handed on like the key.
    """

    def __init__(
        self, stage: Stage, type: RecordType, function: Callable[..., Any], params: dict[str, Any]
    ) -> None:
        self._stage = stage
        self._type = type
        self._function = function
        self._params = params
        self._make = maker(function)
        self._batched = bool(stage.attributes.get("batched", False))
        self._carried = (*type.key, *stage.attributes.get("keeps", ()))
        self._made = without(self._carried, type)
        self._wanted = Wanted.of(self._made)

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        change = self._whole if self._batched else self._each
        return [[change(batch) for batch in inputs[0]]]

    def _each(self, batch: Batch) -> Made:
        made = []
        ours = memory_of(batch)
        for row in batch.to_rows():
            with blamed(self._stage, row["sample"]):
                fields = self._make(row)
                # by no name of ours: what the function gave must be nobody's to count as fresh
                made.append(settled(self._wanted, self._function(fields, **self._params), ours))
        carried = {name: batch[name] for name in self._carried}
        return from_records(self._stage, self._type, made, carried)

    def _whole(self, batch: Batch) -> Made:
        if batch.rows == 0:
            return Batch.empty(self._type)
        with blamed(self._stage, None):
            ours = memory_of(batch)
            given = settled_columns(self._function(columns(batch), **self._params), ours)
            made = batch_of(self._made, given, batch.rows)
            return beside(self._type, made, {name: batch[name] for name in self._carried})


class Filter:
    """Keeps the records for which the function is true; it is handed the fields that it `reads`."""

    def __init__(
        self,
        stage: Stage,
        type: RecordType,
        function: Callable[..., Any],
        params: dict[str, Any],
    ) -> None:
        self._stage = stage
        self._key = frozenset(type.key)
        self._function = function
        self._params = params
        self._make = maker(function)
        self._batched = bool(stage.attributes.get("batched", False))
        self._reads = frozenset(stage.attributes.get("reads", ()))

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        kept = [self._kept(batch) for batch in inputs[0]]
        passed = _samples(kept)
        work.passed = passed if work.passed is None else work.passed & passed
        for sample in sorted(_samples(inputs[0]) - passed):
            work.dropped.setdefault(sample, f"filter '{self._stage.name}'")
        return [kept]

    def _kept(self, batch: Batch) -> Batch:
        mask = self._mask(self._handed(batch))
        return batch if mask.all() else batch.take(mask)

    def _handed(self, batch: Batch) -> Batch:
        """The key and what the function reads: it then decides the same before a map."""
        if not self._reads:
            return batch
        wanted = self._reads | self._key
        return Batch(batch.rows, {n: c for n, c in batch.columns.items() if n in wanted})

    def _mask(self, batch: Batch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self._batched and batch.rows:
            with blamed(self._stage, None):
                given = np.asarray(self._function(columns(batch), **self._params))
                if given.dtype != np.bool_ or given.shape != (batch.rows,):
                    raise ValueError(
                        f"expects bool [{batch.rows}], got {given.dtype} {list(given.shape)}"
                    )
                return given
        mask = np.zeros(batch.rows, np.bool_)
        for at, row in enumerate(batch.to_rows()):
            with blamed(self._stage, row["sample"]):
                mask[at] = bool(self._function(self._make(row), **self._params))
        return mask


class Sink:
    """Hands records to the user's function; those of an evaluation are not its business."""

    def __init__(self, stage: Stage, function: Callable[..., Any], params: dict[str, Any]) -> None:
        self._stage = stage
        self._function = function
        self._params = params
        self._make = maker(function)
        self._batched = bool(stage.attributes.get("batched", False))

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        for batch in inputs[0] if work.item.variant == 0 else []:
            if self._batched:
                with blamed(self._stage, None):
                    self._function(columns(batch), **self._params)
                continue
            for row in batch.to_rows():
                with blamed(self._stage, row["sample"]):
                    self._function(self._make(row), **self._params)
        return []


class Credit:
    """Adds an advantage to each row, from the rewards of whole groups."""

    def __init__(self, stage: Stage, function: Callable[..., Any], params: dict[str, Any]) -> None:
        self._stage = stage
        self._function = function
        self._params = params

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        return [[self._added(batch) for batch in inputs[0]]]

    def _added(self, batch: Batch) -> Batch:
        samples = np.unique(batch["sample"].values)
        with blamed(self._stage, int(samples[0]) if samples.size == 1 else None):
            attributes = self._stage.attributes
            by, size = attributes["group"], int(attributes.get("size", 0))
            return add_advantage(batch, self._function, by, self._params, size=size)


class Reshape:
    """`group` and `join`: no code of the user's."""

    def __init__(self, stage: Stage, graph: Graph) -> None:
        self._stage = stage
        self._from = [graph.stream(name).type for name in stage.inputs]
        self._to = graph.stream(stage.outputs[0]).type

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        # An evaluation plays one trajectory a sample, which need not fill a group.
        sized = work.item.variant == 0
        return [[self._reshaped(batches, sized) for batches in zip(*inputs, strict=True)]]

    def _reshaped(self, batches: Sequence[Batch], sized: bool) -> Batch:
        attributes = self._stage.attributes
        with blamed(self._stage, None):
            if self._stage.op == "group":
                return self._grouped(batches[0], int(attributes.get("size", 0)) * sized)
            return reshape.join(batches, self._from, self._to)

    def _grouped(self, batch: Batch, size: int) -> Batch:
        try:
            return reshape.group(batch, self._stage.attributes.get("by", ("sample",)), size)
        except reshape.UnevenGroup as uneven:  # knows the sample, which can be replayed
            raise failure(self._stage, uneven.sample, uneven) from uneven


class Unnest:
    """Samples to their items, which are taken as they come, joined or not."""

    def __init__(self, stage: Stage, graph: Graph) -> None:
        self._stage = stage
        self._from = graph.stream(stage.inputs[0]).type
        self._to = graph.stream(stage.outputs[0]).type

    def items(self, batches: Given) -> Given:
        """A batch of items for each of samples. Raises StageFailed."""
        dim = self._stage.attributes["dim"]
        with blamed(self._stage, None):
            return [reshape.unnest(batch, self._from, self._to, dim) for batch in batches]

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        return [self.items(inputs[0])]


class Play:
    """Runs episodes; an output stream for each agent whose rows somebody reads."""

    def __init__(
        self, stage: Stage, episodes: Episodes, params_of: Callable[[int], dict[str, Any]]
    ) -> None:
        self._stage = stage
        self._episodes = episodes
        self._params_of = params_of

    async def run(self, work: Work, inputs: Sequence[Units]) -> Sequence[Given]:
        variant = work.item.variant
        outcome = await self._episodes.run(
            inputs[0], work.port, variant=variant, params=self._params_of(variant)
        )
        for name, (total, count) in outcome.figures.items():
            before = work.figures.get(name, (0.0, 0.0))
            work.figures[name] = (before[0] + total, before[1] + count)
        for sample, reason in outcome.dropped.items():
            work.dropped.setdefault(sample, reason)
        return [outcome.tables[agent] for agent in tabled_agents(self._stage)]


def tabled_agents(stage: Stage) -> list[str]:
    """The agent whose table each output of an episodes stage is: `<stage>.<agent>`."""
    return [output.removeprefix(f"{stage.name}.") for output in stage.outputs]


def _samples(batches: Sequence[Batch]) -> set[int]:
    return {sample for batch in batches for sample in batch["sample"].values.tolist()}
