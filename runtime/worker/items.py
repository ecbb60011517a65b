"""From an order to run a task to the item that executors take: its blocks opened, not copied."""

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.item import Item
from flowgraph.runtime.messages import PlainHandle, Run
from flowgraph.runtime.worker.output import Store


def blocks_of(run: Run) -> list[PlainHandle]:
    """All blocks that the run reads."""
    return [handle for units in run.inputs.values() for unit in units for handle in unit]


def item_of(run: Run, store: Store) -> Item:
    """The item, with each unit's rows of every stream that it reads."""
    inputs: dict[str, tuple[Batch, ...]] = {}
    here = store.bring(blocks_of(run))  # held until the item's own views of it are made
    for stream, per_unit in run.inputs.items():
        inputs[stream] = tuple(
            store.open_unit(handles, samples)
            for handles, samples in zip(per_unit, run.samples, strict=True)
        )
    del here
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
