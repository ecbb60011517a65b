"""Suspects are handed out: each alone, to a worker that has nothing and gets nothing else.

Guarantee: no suspect waits for ever. The replacement of the worker that was lost is idle when it is
ready, and suspects come before other work; should none be idle, all are once their work is done,
since no step ends without its suspects.
"""

from collections.abc import Mapping

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import PlainHandle, Run
from flowgraph.runtime.orchestrator.dispatch import MOVING, inputs_of, send_units
from flowgraph.runtime.orchestrator.events import Action, Send
from flowgraph.runtime.orchestrator.membership import GATE, hand_over
from flowgraph.runtime.orchestrator.state import Item, State, Step, Worker, WorkerPhase
from flowgraph.runtime.orchestrator.suspects import Suspect
from flowgraph.runtime.orchestrator.units import lease_apart

Inputs = Mapping[str, tuple[tuple[PlainHandle, ...], ...]]
"""By stream, by unit, the blocks to read."""


def try_suspects(state: State) -> list[Action]:
    """Hand out all suspects that can be tried now."""
    if not state.suspects.waiting:
        return []
    actions: list[Action] = []
    waiting, state.suspects.waiting = state.suspects.waiting, []
    for suspect in waiting:
        worker = _idle(state, suspect) if _possible(state, suspect) else None
        if worker is None:
            state.suspects.waiting.append(suspect)
        else:
            actions.append(_hand_out(state, suspect, worker))
    return actions


def _idle(state: State, suspect: Suspect) -> Worker | None:
    """The worker without any work that had least."""
    group = state.in_group(suspect.route.task.group)
    idle = [w for w in group if w.phase is WorkerPhase.READY and not w.items]
    return min(idle, key=lambda worker: (worker.served, worker.index), default=None)


def _possible(state: State, suspect: Suspect) -> bool:
    """Whether its step is where its task may run."""
    if suspect.order == GATE or not suspect.route.task.versioned:
        return True
    step = _step(state, suspect)
    return step is state.steps[0] and step.phase not in MOVING


def _step(state: State, suspect: Suspect) -> Step:
    found = next((step for step in state.steps if step.order == suspect.order), None)
    if found is None:
        raise InternalError(f"unit {suspect.unit} is under suspicion, and its step is over")
    return found


def _hand_out(state: State, suspect: Suspect, worker: Worker) -> Action:
    worker.trial = suspect
    route = suspect.route
    if suspect.order == GATE:
        if suspect.probing:
            return _probe(state, suspect, worker, None)
        return hand_over(state, worker, route.task, suspect.unit, suspect.samples)
    step = _step(state, suspect)
    if suspect.probing:
        return _probe(state, suspect, worker, step)
    lease_apart(step, route, suspect.unit)
    return send_units(state, step, route, (suspect.unit,), worker)


def _probe(state: State, suspect: Suspect, worker: Worker, step: Step | None) -> Action:
    """One sample of the unit, for nothing but to see whether the process lives through it.

    The unit's blocks are not released by it: the unit itself will read them. step: None before
    membership.
    """
    samples = (suspect.untried[0],)
    inputs: Inputs = {}
    reads: tuple[PlainHandle, ...] = ()
    if step is not None:
        inputs, reads = inputs_of(step, suspect.route, (suspect.unit,))
    item = Item(
        id=state.next_item,
        order=suspect.order,
        task=suspect.route.task.name,
        units=(suspect.unit,),
        worker=worker.name,
        route=suspect.route,
        reads=reads,
        weight=1,
        samples=samples,
    )
    state.next_item += 1
    state.items[item.id] = item
    worker.items.add(item.id)
    worker.inflight += 1
    message = Run(
        item=item.id,
        task=item.task,
        variant=step.variant if step else 0,
        step=step.step if step else -1,
        part=step.part if step else 0,
        version=state.version,
        units=item.units,
        samples=(samples,),
        inputs=inputs,
        outputs=(),
    )
    return Send(worker=worker.name, message=message)
