"""The least loaded worker with room is known without a look at all of them."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.plan import WorkerGroup
from flowgraph.runtime.orchestrator.roster import Roster
from flowgraph.runtime.orchestrator.state import Worker, WorkerPhase


def workers(count: int, most: int) -> list[Worker]:
    group = WorkerGroup(name="host", kind="stage", replicas=count, in_flight=most)
    return [
        Worker(name=f"host-{index}", index=index, group=group, phase=WorkerPhase.READY)
        for index in range(count)
    ]


def by_a_look_at_all(found: list[Worker]) -> Worker | None:
    fitting = [worker for worker in found if worker.room > 0]
    return min(fitting, key=lambda w: (w.inflight, w.served, w.index), default=None)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 7), most=st.integers(1, 5))
def test_it_is_whom_a_look_at_all_would_find(seed: int, count: int, most: int) -> None:
    draw = random.Random(seed)
    all_of_them = workers(count, most)
    roster = Roster(all_of_them)
    roster.look()
    for number in range(300):
        best = roster.best()
        assert best is by_a_look_at_all(all_of_them)
        busy = [worker for worker in all_of_them if worker.items]
        if best is not None and (not busy or draw.random() < 0.5):
            best.items.add(number)
            best.inflight += draw.randint(1, 3)  # an item may hold more than there was room for
            best.served += 1
            roster.handed(best)
        elif busy:
            worker = draw.choice(busy)
            worker.items.pop()
            worker.inflight = 0 if not worker.items else max(1, worker.inflight - 1)
            roster.offer(worker)


def test_loads_of_long_ago_do_not_pile_up() -> None:
    all_of_them = workers(3, 100)
    roster = Roster(all_of_them)
    for number in range(10_000):
        worker = all_of_them[number % 3]
        worker.inflight = number % 90
        roster.offer(worker)
    assert len(roster._heap) < 200


def test_who_is_not_there_gets_nothing() -> None:
    all_of_them = workers(2, 4)
    roster = Roster(all_of_them)
    roster.look()
    all_of_them[0].phase = WorkerPhase.STARTING
    assert roster.best() is all_of_them[1]
    all_of_them[1].phase = WorkerPhase.STOPPING
    assert roster.best() is None
