"""What is in the workers' pools, as far as the orchestrator knows: for the report of who waits.

It counts the blocks that were handed over and that somebody will read, or holds. Looking through
them all takes its time, and is done for a report only: no event pays for it.
"""

from collections.abc import Iterator

from flowgraph.runtime.batch import ALIGN, aligned
from flowgraph.runtime.messages import PlainHandle
from flowgraph.runtime.orchestrator.blocks import OWNER, block_id
from flowgraph.runtime.orchestrator.held import NBYTES
from flowgraph.runtime.orchestrator.state import State


def used(state: State) -> dict[str, tuple[int, int]]:
    """(blocks, bytes with their headers) by the token of the process that wrote them. Weights are
    in memory of their own.
    """
    found: dict[str, tuple[int, int]] = {}
    seen: set[tuple[str, int, int]] = set()
    for handle in _handles(state):
        block = block_id(handle)
        if block not in seen and block in state.references:
            seen.add(block)
            blocks, nbytes = found.get(handle[OWNER], (0, 0))
            found[handle[OWNER]] = blocks + 1, nbytes + aligned(ALIGN + handle[NBYTES])
    return found


def _handles(state: State) -> Iterator[PlainHandle]:
    for step in state.steps:
        for units in step.blocks.values():
            for handles in units:
                yield from handles
        for gradients in step.gradients.values():
            yield from gradients.values()
    for blocks in state.gate_blocks.values():
        yield from blocks.values()
    for _, blocks in state.gate_kept.values():
        yield from blocks.values()
    for worker in state.workers.values():
        for held in worker.held.values():
            yield held.handle
