"""When a block of a pool may be reused: after its last reader.

Law: every block written is freed exactly once, after all its readers are done, and never before.
"""

from collections.abc import Iterable

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import Free, PlainHandle
from flowgraph.runtime.orchestrator.events import Action, Send
from flowgraph.runtime.orchestrator.state import State

OWNER, OFFSET, GENERATION = 0, 3, 5
"""Places in a plain handle: see `Handle.to_plain`."""

BlockId = tuple[str, int, int]


def block_id(handle: PlainHandle) -> BlockId:
    """Who holds it, where, and which use of the place it is."""
    return handle[OWNER], handle[OFFSET], handle[GENERATION]


def retain(state: State, handle: PlainHandle, readers: int) -> list[Action]:
    """Count the block's readers to come; a block without any is freed at once."""
    key = block_id(handle)
    if readers == 0:
        return [_free([key])]
    state.references[key] = state.references.get(key, 0) + readers
    return []


def release(state: State, handles: Iterable[PlainHandle]) -> list[Action]:
    """One reader of each handle is done."""
    dead: dict[str, list[BlockId]] = {}
    for handle in handles:
        key = block_id(handle)
        left = state.references.get(key, 0) - 1
        if left < 0:
            raise InternalError(f"block {key} was released more often than it was read")
        if left:
            state.references[key] = left
        else:
            del state.references[key]
            dead.setdefault(key[0], []).append(key)
    return [_free(keys) for keys in dead.values()]


def _free(keys: list[BlockId]) -> Action:
    return Send(worker=keys[0][0], message=Free(blocks=tuple((key[1], key[2]) for key in keys)))
