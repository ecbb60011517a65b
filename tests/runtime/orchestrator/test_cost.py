"""What an event costs does not depend on how much is in flight.

Counted in calls of functions, which no other load on the machine changes.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import BackwardDone, Done, Generated, Issued
from flowgraph.runtime.orchestrator import core
from flowgraph.runtime.orchestrator.events import Event
from tests.passes.graphs import filtered, laptop, marl, vlm
from tests.runtime.orchestrator.world import World

EVENTS = (Done, BackwardDone, Issued, Generated)


def agents(batch: int) -> Plan:
    return by_one(compile_graph(marl(batch=batch, tries=4), laptop()))


def digits(batch: int) -> Plan:
    return by_one(compile_graph(vlm(batch=batch), laptop(), {"host.replicas": 2}))


def gated(batch: int) -> Plan:
    return by_one(compile_graph(filtered(batch), laptop()))


def by_one(plan: Plan) -> Plan:
    """With events of one record, which gather until all of a step can be one micro-batch."""
    stages = tuple(
        replace(stage, attributes={**stage.attributes, "micro_batch": 10**9})
        if stage.op == "train"
        else stage
        for stage in plan.graph.stages
    )
    graph = replace(plan.graph, stages=stages)
    return replace(plan, graph=graph, schedule=replace(plan.schedule, unit=1))


def calls_an_event(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of functions and generators, in the core, by messages that workers send for records."""
    calls: Counter[str] = Counter()
    events = 0
    take = core.step

    def count(_frame: Any, what: str, _argument: Any) -> None:
        calls[what] += 1

    def counted(state: Any, event: Event, now: float) -> Any:
        nonlocal events
        if not isinstance(event, EVENTS):
            return take(state, event, now)
        events += 1
        sys.setprofile(count)
        try:
            return take(state, event, now)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr("tests.runtime.orchestrator.world.step", counted)
    draw = random.Random(0)
    World(plan, lambda waiting: draw.randrange(min(waiting, 8)), steps=1).run()
    return (calls["call"] + calls["c_call"]) / events


@pytest.mark.parametrize("plan_of", [agents, digits, gated])
@pytest.mark.parametrize("roomy", [False, True], ids=["as planned", "all in flight"])
def test_an_event_costs_the_same_with_ten_times_as_much_in_flight(
    plan_of: Callable[[int], Plan], roomy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(batch: int) -> Plan:
        found = plan_of(batch)
        if not roomy:
            return found
        groups = tuple(replace(group, in_flight=10 * batch) for group in found.groups)
        return replace(found, groups=groups)

    few = calls_an_event(plan(64), monkeypatch)
    many = calls_an_event(plan(640), monkeypatch)
    # What there is to do shifts a little with the batch; a look at all would be ten times as much.
    assert many < 1.5 * few, f"{few:.0f} calls an event, then {many:.0f}"
