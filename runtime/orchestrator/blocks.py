"""When a block of a pool may be reused: after its last reader.

Law: every block written is freed exactly once, after all its readers are done, and never before.
The blocks of a lost process stay readable until then, in its segment, which is closed with the
last of them; what it had written without saying so goes with the segment.
"""

from collections.abc import Iterable

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.incarnation import process_of
from flowgraph.runtime.messages import Free, PlainHandle
from flowgraph.runtime.orchestrator.events import Action, CloseSegment, Send
from flowgraph.runtime.orchestrator.state import State, Worker

OWNER, OFFSET, GENERATION = 0, 3, 5
"""Places in a plain handle: see `Handle.to_plain`."""

BlockId = tuple[str, int, int]


def block_id(handle: PlainHandle) -> BlockId:
    """Which process wrote it, where, and which use of the place it is."""
    return handle[OWNER], handle[OFFSET], handle[GENERATION]


def retain(state: State, handle: PlainHandle, readers: int) -> list[Action]:
    """Count the block's readers to come; a block without any is freed at once."""
    key = (handle[OWNER], handle[OFFSET], handle[GENERATION])
    if readers == 0:
        return _free(state, [key])
    state.references[key] = state.references.get(key, 0) + readers
    return []


def release(state: State, handles: Iterable[PlainHandle]) -> list[Action]:
    """One reader of each handle is done."""
    dead: list[BlockId] = []
    references = state.references
    for handle in handles:
        key = (handle[OWNER], handle[OFFSET], handle[GENERATION])
        left = references.get(key, 0) - 1
        if left < 0:
            raise InternalError(f"block {key} was released more often than it was read")
        if left:
            references[key] = left
        else:
            del references[key]
            dead.append(key)
    if len(dead) < 2:
        return _free(state, dead) if dead else []
    of: dict[str, list[BlockId]] = {}
    for key in dead:
        of.setdefault(key[0], []).append(key)
    return [action for keys in of.values() for action in _free(state, keys)]


def retire(state: State, worker: Worker) -> list[Action]:
    """The worker's process is gone: its blocks are kept for who reads them yet."""
    token = worker.token
    del state.living[token]
    count = sum(key[0] == token for key in state.references)
    if count == 0:
        return [CloseSegment(worker.name, worker.incarnation)]
    state.retired[token] = count
    return []


def _free(state: State, keys: list[BlockId]) -> list[Action]:
    """keys: of one process."""
    token = keys[0][0]
    alive = state.living.get(token)
    if alive is not None:
        state.workers[alive].frees += 1
        if state.full:
            state.full.pop(alive, None)
        return [Send(worker=alive, message=Free(blocks=tuple([key[1:] for key in keys])))]
    left = state.retired.get(token, 0) - len(keys)
    if left < 0:
        raise InternalError(f"blocks of '{token}' are freed, which has none")
    state.retired[token] = left
    if left:
        return []
    del state.retired[token]
    return [CloseSegment(*process_of(token))]
