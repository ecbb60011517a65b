"""Blocks that a worker's items have read and that something there still looks at.

The user's code may keep an array that a function was handed: it is a view of the writer's pool.
Law: a block is held once by a process, from its item's end until that says `Released` or is gone;
meanwhile it counts as one reader of the block.
"""

from collections.abc import Iterable
from typing import NamedTuple

from flowgraph.runtime.messages import BlockName, PlainHandle, Released
from flowgraph.runtime.orchestrator.blocks import block_id, release, retain
from flowgraph.runtime.orchestrator.events import Action, Refuse
from flowgraph.runtime.orchestrator.state import Held, Item, State, Step, Worker

NBYTES = 4
"""Place in a plain handle: see `Handle.to_plain`."""


class Share(NamedTuple):
    """Blocks of one stream that a worker holds for one task, and their bytes."""

    task: str
    stream: str
    blocks: int
    nbytes: int


def is_foreign(held: Iterable[BlockName], reads: Iterable[PlainHandle]) -> bool:
    """Whether a worker says that it holds what it was not given to read."""
    return not set(map(block_id, reads)).issuperset(held)


def hold(
    state: State,
    worker: Worker,
    item: Item,
    step: Step,
    reads: Iterable[PlainHandle],
    held: Iterable[BlockName],
) -> None:
    """The item is over and these of its blocks are not. Before its readers' shares are released."""
    handles = {block_id(handle): handle for handle in reads}
    for name in held:
        if name not in worker.held:
            handle = handles[name]
            retain(state, handle, 1)
            worker.held[name] = Held(handle, item.task, _stream(step, item, handle))


def released(state: State, message: Released) -> list[Action]:
    """Some that were held are free now, or the worker has looked for such in vain.

    Who found some is asked again when that was not enough: it may find more.
    """
    worker = state.workers[message.worker]
    if message.asked and not worker.recalled:
        return [Refuse("out of turn", f"{worker.name} answers what it was not asked")]
    names = set(message.blocks)
    if len(names) < len(message.blocks) or not names <= worker.held.keys():
        return [Refuse("misfit", f"{worker.name} lets go of what it does not hold")]
    handles = [worker.held.pop(name).handle for name in message.blocks]
    if message.asked:
        worker.recalled = False
        if not names:
            state.looked.add(worker.name)
    if not worker.held:
        state.looked.discard(worker.name)
    return release(state, handles)


def let_go(state: State, worker: Worker) -> list[Action]:
    """The worker's process is gone, and with it all that it held. Its own blocks: `retire`."""
    handles = [held.handle for held in worker.held.values()]
    worker.held.clear()
    worker.recalled = False
    state.looked.discard(worker.name)
    return release(state, handles)


def shares(worker: Worker, of: str = "") -> list[Share]:
    """What the worker holds, by stream and task, most bytes first. of: only what it wrote, by its
    process's token.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for (owner, _, _), held in worker.held.items():
        if not of or owner == of:
            blocks, nbytes = found.get((held.task, held.stream), (0, 0))
            found[held.task, held.stream] = blocks + 1, nbytes + held.handle[NBYTES]
    return sorted(
        (Share(task, stream, *counts) for (task, stream), counts in found.items()),
        key=lambda share: (-share.nbytes, share.task, share.stream),
    )


def _stream(step: Step, item: Item, handle: PlainHandle) -> str:
    """The stream whose block of the item's units it is, or the gradient of one."""
    for stream in item.route.task.inputs:
        blocks = step.blocks[stream]
        if any(handle in blocks[unit] for unit in item.units):
            return stream
    return f"gradient/{item.task}"
