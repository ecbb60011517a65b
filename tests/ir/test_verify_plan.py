"""One case a rule of the plan dialect: a compiled plan with one thing wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Layout, Place, Plan
from flowgraph.ir.verify import plan_faults, verify_plan
from flowgraph.passes import compile_graph
from tests.passes.graphs import filtered, gpus, laptop, marl, vlm

MARL = compile_graph(marl(), laptop())
VLM = compile_graph(vlm(), laptop())


def group(plan: Plan, name: str, **changes: Any) -> Plan:
    new = tuple(replace(g, **changes) if g.name == name else g for g in plan.groups)
    return replace(plan, groups=new)


def task(plan: Plan, name: str, **changes: Any) -> Plan:
    new = tuple(replace(t, **changes) if t.name == name else t for t in plan.tasks)
    return replace(plan, tasks=new)


def channel(plan: Plan, stream: str, **changes: Any) -> Plan:
    new = tuple(replace(c, **changes) if c.stream == stream else c for c in plan.channels)
    return replace(plan, channels=new)


def schedule(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, schedule=replace(plan.schedule, **changes))


def node(plan: Plan, **changes: Any) -> Plan:
    nodes = (replace(plan.cluster.nodes[0], **changes),)
    return replace(plan, cluster=replace(plan.cluster, nodes=nodes))


def room(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, rooms=(replace(plan.rooms[0], **changes), *plan.rooms[1:]))


SHARED = compile_graph(marl(), gpus(1, 3))

CASES: dict[str, tuple[Callable[[], Plan], str]] = {
    "whole engines": (
        lambda: group(MARL, "solver.engine", layout=Layout(tp=2)),
        "group 'solver.engine': expects whole engines, got 1 processes for engines of 2",
    ),
    "residency": (
        lambda: group(MARL, "solver.gang", residency="residant"),
        "group 'solver.gang': expects a residency, got 'residant'",
    ),
    "turns on others' devices": (
        lambda: group(SHARED, "verifier.gang", shares="solver.engine"),
        "group 'verifier.gang': expects to share a gang's own devices, got 'solver.engine'",
    ),
    "turns elsewhere": (
        lambda: group(SHARED, "verifier.gang", places=(Place(node="n0", device=2),)),
        "group 'verifier.gang': expects places of 'solver.gang', got others",
    ),
    "a device held twice": (
        lambda: group(SHARED, "verifier.gang", shares=""),
        "node 'n0': expects 1 workers on device 0, got 2",
    ),
    "room of nobody": (
        lambda: room(MARL, group="solver.engin"),
        "room 'solver.engin': expects a group of its own, got none or another's",
    ),
    "room too small": (
        lambda: room(MARL, most=0),
        "room 'solver.engine': expects 1 processes within it, got 1 to 0",
    ),
    "budget of a device's channel": (
        lambda: channel(SHARED, "solver.weights", capacity_bytes=0),
        "channel 'solver.weights': expects a budget within the pool's",
    ),
    "task twice": (
        lambda: replace(VLM, tasks=(*VLM.tasks, VLM.tasks[0])),
        "task 'samples': expects a name of its own, got it twice",
    ),
    "no node": (
        lambda: replace(VLM, cluster=replace(VLM.cluster, nodes=())),
        "cluster 'laptop': expects a node, got none",
    ),
    "kind of device": (
        lambda: node(VLM, device="cor"),
        "node 'local': expects a declared kind of device, got 'cor'",
    ),
    "no cores": (lambda: node(VLM, cores=0), "node 'local': expects cores >= 1, got 0"),
    "no slots": (
        lambda: replace(
            VLM, cluster=replace(VLM.cluster, kinds=(replace(VLM.cluster.kinds[0], slots=0),))
        ),
        "kind 'core': expects slots >= 1, got 0",
    ),
    "schedule's counts": (
        lambda: schedule(VLM, unit=0),
        "schedule 'unit': expects at least 1, got 0",
    ),
    "chunks": (
        lambda: schedule(VLM, chunk=5),
        "schedule 'chunk': expects to divide 64 samples / 1 updates, got 5",
    ),
    "mode": (
        lambda: schedule(VLM, mode="serial"),
        "schedule 'mode': expects one of pipeline, barrier, got 'serial'",
    ),
    "kind of group": (
        lambda: group(VLM, "host", kind="stages"),
        "group 'host': expects a kind of group, got 'stages'",
    ),
    "group's module": (
        lambda: group(VLM, "vit.gang", module="vot"),
        "group 'vit.gang': expects a declared module, got 'vot'\n  try: 'vit'",
    ),
    "group's agents": (
        lambda: group(MARL, "solver.engine", agents=("solvr",)),
        "group 'solver.engine': expects declared agents, got 'solvr'\n  try: 'solver'",
    ),
    "no replicas": (
        lambda: group(VLM, "host", replicas=0, places=()),
        "group 'host': expects replicas and in_flight >= 1, got replicas=0",
    ),
    "ranks": (
        lambda: group(VLM, "vit.gang", layout=Layout(dp=2)),
        "group 'vit.gang': expects a process for each rank, got 2 ranks in 1 processes",
    ),
    "engine's slots": (
        lambda: group(MARL, "solver.engine", slots=0),
        "group 'solver.engine': expects slots and max_length >= 1, got slots=0",
    ),
    "places": (
        lambda: group(VLM, "vit.gang", places=()),
        "group 'vit.gang': expects a place for each of 1 replicas, got 0 places",
    ),
    "place's node": (
        lambda: group(VLM, "vit.gang", places=(Place(node="locl"),)),
        "group 'vit.gang': expects places on the cluster's nodes, got 'locl'",
    ),
    "place's device": (
        lambda: group(VLM, "vit.gang", places=(Place(node="local", device=2),)),
        "group 'vit.gang': expects places on devices that there are, got device 2 of 2 on local",
    ),
    "crowded device": (
        lambda: group(
            compile_graph(vlm(), gpus(1, 2)), "vit.gang", places=(Place(node="n0", device=1),)
        ),
        "node 'n0': expects 1 workers on device 1, got 2",
    ),
    "kind of task": (
        lambda: task(VLM, "encode", kind="aply"),
        "task 'encode': expects a kind of task, got 'aply'\n  try: 'apply'",
    ),
    "task's stages": (
        lambda: task(VLM, "encode", stages=("encoder",)),
        "task 'encode': expects stages of the graph, got 'encoder'",
    ),
    "task's group": (
        lambda: task(VLM, "encode", group="host"),
        "task 'encode': expects a gang group to run it, got 'host', a group of kind 'stage'",
    ),
    "unknown group": (
        lambda: task(VLM, "encode", group="vit"),
        "task 'encode': expects a gang group to run it, got 'vit', no group",
    ),
    "stage without a task": (
        lambda: task(VLM, "samples", stages=("samples",)),
        "stage 'images': expects 1 tasks to run it, got 0",
    ),
    "order": (
        lambda: replace(VLM, tasks=VLM.tasks[::-1]),
        "task 'train-lm': expects to stand after 'samples', got it before",
    ),
    "input from nowhere": (
        lambda: task(VLM, "samples", outputs=("images",)),
        "task 'train-lm': expects inputs that a task makes, got 'samples'",
    ),
    "no channel": (
        lambda: replace(VLM, channels=VLM.channels[1:]),
        "task 'train-lm': expects a channel for 'samples', got none",
    ),
    "two channels": (
        lambda: replace(VLM, channels=(*VLM.channels, VLM.channels[0])),
        "channel 'samples': expects one channel of a stream, got two",
    ),
    "channel's stream": (
        lambda: replace(VLM, channels=(*VLM.channels, replace(VLM.channels[0], stream="sample"))),
        "channel 'sample': expects a stream of the graph, got no such stream\n  try: 'samples'",
    ),
    "transport": (
        lambda: channel(VLM, "images", transport="shm"),
        "channel 'images': expects a transport, got 'shm'",
    ),
    "no room": (
        lambda: channel(VLM, "images", capacity_records=0),
        "channel 'images': expects room for a unit of 16 samples, got 0 records",
    ),
    "budget over the pool": (
        lambda: replace(VLM, pool_bytes=1000),
        "channel 'samples': expects a budget within the pool's 1000 bytes, got 214505472 bytes",
    ),
    "no engine": (
        lambda: replace(MARL, groups=tuple(g for g in MARL.groups if g.name != "solver.engine")),
        "agent 'solver': expects one group of engines, got 0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_rule_says_what_is_expected_and_what_is_there(name: str) -> None:
    change, message = CASES[name]
    said = [str(fault) for fault in plan_faults(change())]
    assert any(message in text for text in said), said


@pytest.mark.parametrize("graph", [marl(), vlm(), filtered()], ids=["marl", "vlm", "filtered"])
def test_compiled_plans_have_no_faults(graph: Graph) -> None:
    for cluster in (laptop(), gpus(), gpus(3, 4)):
        assert list(plan_faults(compile_graph(graph, cluster))) == []


def test_the_first_fault_is_raised() -> None:
    with pytest.raises(PlanError, match="expects at least 1"):
        verify_plan(schedule(VLM, unit=0))
