"""Silence counts only while something is expected of a worker."""

from flowgraph.passes import compile_graph
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.state import RunPhase, State, Want, WorkerPhase, new_state
from flowgraph.runtime.silence import Silence
from tests.passes.graphs import laptop, marl


def running() -> State:
    state = new_state(compile_graph(marl(batch=4, tries=2), laptop()), RunOptions(run_dir="run"))
    state.phase = RunPhase.RUNNING
    return state


def test_a_worker_without_work_may_be_silent_for_ever() -> None:
    state, silence = running(), Silence(limit_s=10.0)
    assert silence.over(state, 0.0) == []
    assert silence.over(state, 1000.0) == []


def test_a_worker_that_holds_work_is_late_after_the_limit_since_its_last_word() -> None:
    state, silence = running(), Silence(limit_s=10.0)
    silence.over(state, 0.0)
    state.workers["solver.gang-0"].items.add(1)
    assert silence.over(state, 9.0) == []
    silence.heard("solver.gang-0", 9.0)
    assert silence.over(state, 18.0) == []
    assert silence.over(state, 20.0) == [("solver.gang-0", 11.0)]


def test_a_stage_worker_is_not_blamed_while_an_engine_holds_its_calls() -> None:
    state, silence = running(), Silence(limit_s=10.0)
    silence.over(state, 0.0)
    state.workers["host-0"].items.add(1)
    state.workers["solver.engine-0"].inflight = 3
    assert silence.over(state, 20.0) == [("solver.engine-0", 20.0)]
    state.workers["solver.engine-0"].inflight = 0
    assert silence.over(state, 25.0) == []
    assert silence.over(state, 31.0) == [("host-0", 11.0)]


def test_one_that_waits_for_room_is_not_blamed_unless_it_was_asked_something() -> None:
    state, silence = running(), Silence(limit_s=10.0)
    silence.over(state, 0.0)
    state.workers["host-0"].items.add(1)
    state.full["host-0"] = Want("games", 640)
    assert silence.over(state, 20.0) == []
    state.workers["host-0"].recalled = True
    state.workers["solver.gang-0"].recalled = True
    assert silence.over(state, 31.0) == [("host-0", 11.0), ("solver.gang-0", 11.0)]


def test_when_the_run_stops_all_must_answer() -> None:
    state, silence = running(), Silence(limit_s=10.0)
    state.phase = RunPhase.STOPPING
    silence.over(state, 0.0)
    for name, worker in state.workers.items():
        worker.phase = WorkerPhase.STOPPING if name == "host-0" else WorkerPhase.STOPPED
    assert silence.over(state, 11.0) == [("host-0", 11.0)]


def test_a_stage_worker_is_not_blamed_while_its_calls_wait_for_an_engine_to_be_replaced() -> None:
    state, silence = running(), Silence(limit_s=10.0)
    silence.over(state, 0.0)
    state.workers["host-0"].items.add(1)
    state.queued["solver.engine"] = [("host-0", "solver", ())]
    assert silence.over(state, 20.0) == []
    state.queued.clear()
    assert silence.over(state, 31.0) == [("host-0", 11.0)]


def test_an_hour_in_which_the_run_itself_was_stopped_is_held_against_nobody() -> None:
    state, silence = running(), Silence(limit_s=100.0)
    state.workers["host-0"].items.add(1)
    silence.over(state, 0.0)
    silence.heard("host-0", 1.0)
    assert silence.over(state, 20.0) == []
    assert silence.over(state, 3620.0) == []
    assert silence.over(state, 3640.0) == []
    assert silence.over(state, 3660.0) == []
    assert silence.over(state, 3680.0) == []
    assert silence.over(state, 3702.0) == [("host-0", 101.0)]
