"""Generate calls: from the stage worker that issues them to an engine, and answers back.

Laws: every call is answered to the process that issued it, once, as long as that process lives;
issued = answered + dropped + open. A call whose engine is lost goes to another; while an agent has
no engine that is ready, its calls wait here.
"""

from collections.abc import Sequence

from flowgraph.runtime.messages import Answers, Generate, Generated, Issued, PlainCall
from flowgraph.runtime.orchestrator.events import Action, Refuse, Send
from flowgraph.runtime.orchestrator.state import OpenCall, State, Worker, WorkerPhase


def issued(state: State, event: Issued) -> list[Action]:
    """A stage worker asks an agent. Refused when it cannot be: by kind, agent, or a used number."""
    worker = state.workers[event.worker]
    if worker.group.kind != "stage" or not worker.items:
        return [Refuse("out of turn", f"calls from {event.worker}, which plays nothing")]
    if not any(event.agent in group.agents for group in state.plan.groups):
        return [Refuse("out of turn", f"calls of {event.worker} to nobody: '{event.agent}'")]
    last = worker.asked.get(event.agent, -1)
    for call in event.calls:
        if call[0] <= last:
            return [Refuse("repeated", f"call {call[0]} of {event.worker}, which was issued")]
        last = call[0]
    worker.asked[event.agent] = last
    state.call_record.admitted += len(event.calls)
    return _spread(state, worker.token, event.agent, event.calls)


def _spread(state: State, origin: str, agent: str, calls: Sequence[PlainCall]) -> list[Action]:
    """Over the agent's engines: the least loaded first, in contiguous shares."""
    group = state.topology.engine_for(agent).name
    engines = sorted(
        (worker for worker in state.in_group(group) if worker.phase is WorkerPhase.READY),
        key=lambda worker: (worker.inflight, worker.index),
    )
    if not engines:
        state.queued.setdefault(group, []).append((origin, agent, tuple(calls)))
        state.calls.update({(origin, call[0]): OpenCall("", agent, call) for call in calls})
        return []
    total = len(calls) + sum(engine.inflight for engine in engines)
    actions: list[Action] = []
    begin = 0
    for place, engine in enumerate(engines):
        left = len(engines) - place
        fair = -(-total // left)
        take = min(max(fair - engine.inflight, 0), len(calls) - begin)
        total -= engine.inflight + take
        if take:
            actions.append(_hand(state, engine, origin, agent, calls[begin : begin + take]))
            begin += take
    return actions


def _hand(
    state: State, engine: Worker, origin: str, agent: str, calls: Sequence[PlainCall]
) -> Action:
    engine.inflight += len(calls)
    for call in calls:
        state.calls[(origin, call[0])] = OpenCall(engine.name, agent, call)
    message = Generate(origin=origin, agent=agent, calls=tuple(calls))
    return Send(worker=engine.name, message=message)


def generated(state: State, event: Generated) -> list[Action]:
    """An engine's answers go to who asked; to nobody when that process is gone."""
    engine = state.workers[event.worker]
    answered = []
    for completion in event.completions:
        key = (event.origin, completion[0])
        known = state.calls.get(key)
        if known is not None and known.engine == event.worker:
            del state.calls[key]
            answered.append(completion)
    if not answered:
        return [Refuse("out of turn", f"answers of {event.worker} that nobody waits for")]
    engine.inflight -= len(answered)
    engine.busy_s += event.busy_s
    actions: list[Action] = []
    if len(answered) < len(event.completions):
        actions.append(Refuse("repeated", f"answers of {event.worker} that were given before"))
    to = state.living.get(event.origin)
    if to is None:
        state.call_record.dropped += len(answered)
        return [*actions, Refuse("late answer", f"to {event.origin}, which is gone")]
    state.call_record.consumed += len(answered)
    return [*actions, Send(worker=to, message=Answers(completions=tuple(answered)))]


def forget_caller(state: State, worker: Worker) -> None:
    """A stage worker is lost: what waits for an engine is wanted by nobody.

    Its calls that engines have stay open until they are answered: that work is being done.
    """
    origin = worker.token
    for group, waiting in state.queued.items():
        state.queued[group] = [entry for entry in waiting if entry[0] != origin]
    for key in [k for k, known in state.calls.items() if k[0] == origin and not known.engine]:
        del state.calls[key]
        state.call_record.dropped += 1


def reissue(state: State, engine: Worker) -> list[Action]:
    """An engine is lost: its calls go to others, or wait; those of lost callers end here."""
    again: dict[tuple[str, str], list[PlainCall]] = {}
    for key in [k for k, known in state.calls.items() if known.engine == engine.name]:
        known = state.calls.pop(key)
        if key[0] in state.living:
            again.setdefault((key[0], known.agent), []).append(known.call)
        else:
            state.call_record.dropped += 1
    engine.inflight = 0
    actions: list[Action] = []
    for (origin, agent), calls in again.items():
        actions += _spread(state, origin, agent, calls)
    return actions


def engine_ready(state: State, engine: Worker) -> list[Action]:
    """What waited for an engine of its group."""
    actions: list[Action] = []
    for origin, agent, calls in state.queued.pop(engine.group.name, []):
        actions += _spread(state, origin, agent, calls)
    return actions
