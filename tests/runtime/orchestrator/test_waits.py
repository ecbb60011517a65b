"""The wait report names for each worker and stream what is waited for, since when, from whom."""

import json

from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import Fetching, Issued, Ready, Update
from flowgraph.runtime.orchestrator.events import Send, Started
from flowgraph.runtime.orchestrator.wait_report import Signs, WaitReport, WorkerWait
from flowgraph.runtime.orchestrator.waits import wait_report
from tests.passes.graphs import laptop, marl
from tests.runtime.orchestrator.world import World

CALL = (1, b"k", b"p", 4, 1.0, (), ())


def fresh() -> World:
    return World(compile_graph(marl(batch=4, tries=2), laptop()), choose=lambda _: 0)


def started() -> World:
    world = fresh()
    world.feed(Started())
    for name in world.state.workers:
        world.feed(Ready(worker=name, pid=1, sizes={"0": -1, "1": -1}))
    return world


def waits(report: WaitReport) -> dict[str, WorkerWait]:
    return {worker.name: worker for worker in report.workers}


def test_before_all_are_ready_those_that_are_wait_for_those_that_are_not() -> None:
    world = fresh()
    world.feed(Started())
    world.feed(Ready(worker="host-0", pid=1, sizes={"0": -1}))
    found = waits(wait_report(world.state, 1.0))
    assert found["host-0"].waits_for == "all workers to be ready"
    assert "solver.gang-0" in found["host-0"].whom
    assert found["solver.gang-0"].state == "starting"


def test_a_stage_worker_works_on_its_samples_and_everybody_else_waits_for_it() -> None:
    world = started()
    found = waits(wait_report(world.state, 1.0))
    assert found["host-0"].state == "working"
    ((task, samples, since),) = found["host-0"].holds
    assert (task, since) == ("games", 1.0)
    assert samples.startswith("0-")
    assert found["solver.engine-0"].waits_for == "calls"
    assert found["solver.engine-0"].whom == ("host-0",)
    assert found["solver.gang-0"].waits_for.endswith("of step 0")
    assert found["solver.gang-0"].whom == ("host-0",)


def test_one_whose_calls_are_open_waits_for_the_engine_that_has_them() -> None:
    world = started()
    world.feed(Issued(worker="host-0", agent="solver", calls=(CALL,)))
    found = waits(wait_report(world.state, 1.0))
    assert found["host-0"].waits_for == "answers of engines"
    assert found["host-0"].whom == ("solver.engine-0",)
    assert found["solver.engine-0"].state == "working"


def test_one_whose_items_wait_for_another_nodes_blocks_says_so_and_from_whom() -> None:
    world = started()
    held = tuple(world.state.workers["host-0"].items)
    world.feed(Fetching(worker="host-0", items=held, porters=("porter:right",)))
    found = waits(wait_report(world.state, 1.0))["host-0"]
    assert (found.state, found.waits_for) == ("waiting", "blocks of another node")
    assert found.whom == ("porter:right",)
    world.feed(Fetching(worker="host-0", items=held[1:], porters=("porter:right",)))
    assert waits(wait_report(world.state, 1.0))["host-0"].state == "working"
    world.feed(Fetching(worker="host-0", items=(), porters=()))
    assert waits(wait_report(world.state, 1.0))["host-0"].state == "working"


def test_a_wait_keeps_the_time_at_which_it_was_first_seen() -> None:
    world = started()
    first = wait_report(world.state, 1.0)
    second = wait_report(world.state, 9.0, before=first)
    for name, worker in waits(second).items():
        assert worker.since == 1.0, name
    world.feed(Issued(worker="host-0", agent="solver", calls=(CALL,)))
    third = waits(wait_report(world.state, 12.0, before=second))
    assert third["host-0"].since == 12.0
    assert third["host-0"].holds[0][2] == 1.0, "it has had the item since then"
    assert third["solver.gang-0"].since == 1.0


def test_units_of_a_stream_are_waiting_ready_running_or_done_and_add_up() -> None:
    world = started()
    report = wait_report(world.state, 1.0)
    step = world.state.steps[0]
    found = [stream for stream in report.streams if stream.step == step.step]
    assert {stream.task for stream in found} >= {"train-solver", "train-verifier"}
    for stream in found:
        total = stream.waiting + stream.ready + stream.running + stream.done
        assert total == len(step.units)
    train = next(stream for stream in found if stream.task == "train-solver")
    assert (train.waiting, train.whom) == (len(step.units), ("host-0",))


def test_during_an_update_all_wait_for_the_ranks_that_have_not_moved() -> None:
    world = started()
    updating = False
    for _ in range(10_000):
        _, message = world.waiting.pop(0)
        actions = world.feed(message)
        updating = any(isinstance(a, Send) and isinstance(a.message, Update) for a in actions)
        if updating:
            break
    assert updating
    found = waits(wait_report(world.state, 5.0))
    assert found["solver.gang-0"].state == "working"
    assert found["solver.engine-0"].waits_for == "weights of version 1"
    assert set(found["solver.engine-0"].whom) == world.state.steps[0].waiting_for


def test_signs_of_life_are_told_as_they_are_and_all_of_it_is_json() -> None:
    world = started()
    signs = Signs(heard={"host-0": 0.5}, silent={"host-0": 0.25})
    plain = wait_report(world.state, 2.0, signs).to_plain(1000.0)
    host = next(worker for worker in plain["workers"] if worker["name"] == "host-0")
    assert (host["heard"], host["no_beat_since"], host["since"]) == (1000.5, 1000.25, 1002.0)
    assert json.loads(json.dumps(plain)) == plain


def test_it_changes_nothing() -> None:
    world = started()
    before = repr(world.state)
    wait_report(world.state, 1.0)
    assert repr(world.state) == before
