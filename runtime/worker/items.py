"""From an order to run a task to the item that executors take: its blocks opened, not copied."""

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.item import Item
from flowgraph.runtime.messages import PlainHandle, Run
from flowgraph.runtime.worker.leases import name_of
from flowgraph.runtime.worker.output import Store


def blocks_of(run: Run) -> list[PlainHandle]:
    """All blocks that the run reads."""
    return [handle for units in run.inputs.values() for unit in units for handle in unit]


def item_of(run: Run, store: Store) -> Item:
    """The item, with each unit's rows of every stream that it reads: see `Arrivals`, `Leases`."""
    store.leases.begin(run.item, map(name_of, blocks_of(run)))
    inputs: dict[str, tuple[Batch, ...]] = {}
    for stream, per_unit in run.inputs.items():
        inputs[stream] = tuple(
            store.open_unit(handles, samples)
            for handles, samples in zip(per_unit, run.samples, strict=True)
        )
    return Item(
        id=run.item,
        task=run.task,
        variant=run.variant,
        step=run.step,
        part=run.part,
        version=run.version,
        units=run.units,
        samples=run.samples,
        inputs=inputs,
    )
