"""`step(state, event, now) -> actions`: one event in, what to do about it out.

Deterministic and without I/O: the shell, the tests and the simulator drive this one function.
Guarantee: a well-formed message of a worker, whenever it comes, is taken or refused (and counted),
never an error; InternalError is left to bugs of ours.
"""

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import (
    BackwardDone,
    Done,
    Failed,
    Fetching,
    Full,
    Generated,
    Issued,
    Loaded,
    Message,
    Ready,
    Released,
    Saved,
    Stopped,
    Updated,
)
from flowgraph.runtime.orchestrator.calls import generated, issued
from flowgraph.runtime.orchestrator.checkpoints import saved
from flowgraph.runtime.orchestrator.completion import backward_done, done
from flowgraph.runtime.orchestrator.deaths import died, failed, interrupted
from flowgraph.runtime.orchestrator.dispatch import dispatch, dispatch_after
from flowgraph.runtime.orchestrator.events import (
    Action,
    Event,
    Interrupted,
    Refuse,
    Started,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.held import released
from flowgraph.runtime.orchestrator.presence import ready, stop, stopped
from flowgraph.runtime.orchestrator.room import full, make_room
from flowgraph.runtime.orchestrator.state import RunPhase, State
from flowgraph.runtime.orchestrator.trials import try_suspects
from flowgraph.runtime.orchestrator.updates import loaded, move_on, updated

QUIET = frozenset(
    {
        Done,
        BackwardDone,
        Issued,
        Generated,
        Updated,
        Loaded,
        Saved,
        Fetching,
        Full,
        Released,
    }
)
"""After these only what they say themselves can have become possible: see `State.stale`."""


RUNNING, ENDED = RunPhase.RUNNING, RunPhase.ENDED  # a name is found faster than an enum's member


def step(state: State, event: Event, now: float) -> list[Action]:
    """Take one event into the state and return what follows. now: seconds, monotonic."""
    if state.phase is ENDED:
        return []
    if type(event) in QUIET:
        actions = _message(state, event, now)  # type: ignore[arg-type]  # all of them are
    else:
        state.stale = True
        actions = _take(state, event, now)
    if state.phase is RUNNING:
        _go_on(state, now, actions)
        if state.full and state.phase is RUNNING:
            actions += make_room(state)
    return actions


def _take(state: State, event: Event, now: float) -> list[Action]:
    match event:
        case Started():
            return []
        case WorkerDied():
            return died(state, event, now)
        case Interrupted():
            return interrupted(state, event)
        case _:
            return _message(state, event, now)


def _message(state: State, event: Message, now: float) -> list[Action]:
    name = getattr(event, "worker", "")
    worker = state.workers.get(name)
    if worker is None:
        raise InternalError(f"the orchestrator was sent a {type(event).__name__} of '{name}'")
    if getattr(event, "incarnation", 0) != worker.incarnation or worker.stopped:
        what = f"a {type(event).__name__} of a process of {name} that is gone"
        return [Refuse("late message", what)]
    match event:
        case Done():
            return done(state, event)
        case Issued():
            return issued(state, event)
        case Generated():
            return generated(state, event)
        case BackwardDone():
            return backward_done(state, event)
        case Updated():
            return updated(state, event, now)
        case Loaded():
            return loaded(state, event, now)
        case Saved():
            return saved(state, event)
        case Ready():
            return ready(state, event, now)
        case Stopped():
            return stopped(state, event)
        case Fetching():
            worker.fetching, worker.porters = frozenset(event.items), event.porters
            return []
        case Full():
            return full(state, event)
        case Released():
            return released(state, event)
        case Failed():
            return failed(state, event)
        case _:
            raise InternalError(f"the orchestrator was sent a {type(event).__name__}")


def _go_on(state: State, now: float, actions: list[Action]) -> None:
    """Hand out work and move steps on until nothing more follows."""
    while True:
        if state.stale:
            state.stale = False
            actions += try_suspects(state)  # first: they want a worker without work
            actions += dispatch(state)
            if state.steps and not state.steps[0].began:
                state.steps[0].began = now
        elif state.done is not None:
            actions += dispatch_after(state, state.done)
        state.done = None
        actions += move_on(state, now)
        if not state.steps and state.next_step > state.total_steps and not state.saving:
            actions += stop(state)
            return
        if not state.stale:
            return
