"""Who waits for room in its pool, and the end of a run in which nobody can make any.

Law 3: a worker that waits for room waits for others to consume. When nobody has anything left to do
or to say, that will never be. Then whoever holds blocks of the full pools is asked to search for
garbage; if that gives no room either, the run ends naming who keeps what. Each standstill asks
anew: what the user's code let go of meanwhile may be garbage. No clock is needed here: `Full` tells
how many `Free` the worker had taken, so one that is on its way is known.
"""

from flowgraph.runtime.messages import Full, Recall
from flowgraph.runtime.orchestrator.events import Abort, Action, Refuse, Send
from flowgraph.runtime.orchestrator.held import Share, shares
from flowgraph.runtime.orchestrator.state import RunPhase, State, Want, Worker, WorkerPhase
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.reader import KEEP_COPIES


def full(state: State, message: Full) -> list[Action]:
    """The worker waits for room, unless some is on its way."""
    worker = state.workers[message.worker]
    if not _writes(state, worker) or not 0 <= message.freed <= worker.frees:
        return [Refuse("out of turn", f"{worker.name} waits for room without any work")]
    if message.freed == worker.frees:
        if worker.name not in state.full:
            state.looked.clear()
        state.full[worker.name] = Want(message.stream, message.nbytes)
    return []


def make_room(state: State) -> list[Action]:
    """What to do about full pools: nothing while somebody can go on. Called after every event."""
    if _can_go_on(state):
        state.looked.clear()
        return []
    if any(worker.recalled for worker in state.workers.values()):
        return []
    tokens = {state.workers[name].token for name in state.full}
    asked: list[Action] = []
    for worker in state.workers.values():
        if worker.name not in state.looked and any(owner in tokens for owner, _, _ in worker.held):
            worker.recalled = True
            asked.append(Send(worker=worker.name, message=Recall()))
    if asked:
        return asked
    state.phase = advance("the run", state.phase, RunPhase.ENDED)
    return [_end(state)]


def _writes(state: State, worker: Worker) -> bool:
    return bool(worker.items) or _moves(state, worker)


def _moves(state: State, worker: Worker) -> bool:
    """Whether the present barrier waits for it."""
    return bool(state.steps) and worker.name in state.steps[0].waiting_for


def _can_go_on(state: State) -> bool:
    """Whether a worker has something to do. The one found last is nearly always still one."""
    last = state.workers.get(state.able)
    if last is not None and _is_able(state, last):
        return True
    for worker in state.workers.values():
        if _is_able(state, worker):
            state.able = worker.name
            return True
    backward = (state.items[number] for step in state.steps for number in step.backward)
    return any(not item.awaiting and item.worker not in state.full for item in backward)


def _is_able(state: State, worker: Worker) -> bool:
    if worker.phase in (WorkerPhase.STARTING, WorkerPhase.LOADING):
        return True
    if worker.name in state.full:
        return False
    if worker.items or worker.inflight or worker.name in state.loading:
        return True
    return _moves(state, worker) or any(worker.name in left for left in state.saving.values())


def _end(state: State) -> Abort:
    found: list[tuple[Share, Worker, Worker]] = []
    for name in state.full:
        writer = state.workers[name]
        for keeper in state.workers.values():
            found += [(share, keeper, writer) for share in shares(keeper, writer.token)]
    if not found:
        writer = state.workers[next(iter(state.full))]
        return Abort(
            what=f"{_wait(state, writer)}, and nothing that is in its pool can be consumed",
            hint="a larger pool_bytes, fewer samples a unit, or --spill",
        )
    share, keeper, writer = max(found, key=lambda one: one[0].nbytes)
    task = state.plan.task(share.task)
    cause = (
        f"keeps {share.blocks} blocks, {share.nbytes:,} bytes, of stream '{share.stream}' after "
        f"its work was done (in worker {keeper.name}), while {_wait(state, writer)}"
    )
    stage = ", ".join(task.stages)
    return Abort(what=f"stage '{stage}' {cause}", hint=KEEP_COPIES, stage=stage, cause=cause)


def _wait(state: State, writer: Worker) -> str:
    want, spill = state.full[writer.name], state.options.spill_bytes
    disk = f" and its spill of {spill:,}" if spill else ""
    return (
        f"worker {writer.name} waits for room for {want.nbytes:,} bytes of stream '{want.stream}' "
        f"in its pool of {state.plan.pool_bytes:,}{disk}"
    )
