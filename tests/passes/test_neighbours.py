"""What one more or one fewer device changes: the same as planning on such a cluster."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Neighbour, Plan
from flowgraph.passes import compile_graph
from flowgraph.passes.neighbours import neighbours_of
from tests.passes.graphs import gpus, laptop, marl, vlm


def by_devices(plan: Plan) -> dict[int, Neighbour]:
    return {neighbour.devices: neighbour for neighbour in plan.neighbours}


def resized(cluster: Cluster, devices: int) -> Cluster:
    """With so many devices more on its last node, and as many cores where these are the devices."""
    *others, last = cluster.nodes
    cores = devices if cluster.kind(last.device).kind == "cpu" else 0
    last = replace(last, devices=last.devices + devices, cores=last.cores + cores)
    return replace(cluster, nodes=(*others, last))


@pytest.mark.parametrize("make", [marl, vlm])
@pytest.mark.parametrize("devices", [1, -1])
def test_a_core_more_or_less_is_what_a_plan_on_such_a_machine_predicts(
    make: Callable[[], Graph], devices: int
) -> None:
    near = by_devices(compile_graph(make(), laptop(cores=2)))[devices]
    there = compile_graph(make(), resized(laptop(cores=2), devices))
    assert near.kind == "core"
    assert near.step_seconds == pytest.approx(there.prediction.step_seconds, rel=1e-3)


@pytest.mark.parametrize("make", [marl, vlm])
@pytest.mark.parametrize("devices", [4, 5, 6, 7])
def test_a_device_less_is_what_a_plan_on_such_a_node_predicts(
    make: Callable[[], Graph], devices: int
) -> None:
    near = by_devices(compile_graph(make(), gpus(1, devices)))[-1]
    there = compile_graph(make(), gpus(1, devices - 1))
    assert near.step_seconds == pytest.approx(there.prediction.step_seconds, rel=1e-3)


@pytest.mark.parametrize("devices", [3, 4, 5, 8])
def test_a_device_more_never_makes_a_step_longer(devices: int) -> None:
    plan = compile_graph(marl(), gpus(1, devices))
    more = by_devices(plan)[1]
    assert 0 < more.step_seconds <= plan.prediction.step_seconds


def test_what_a_hasty_search_finds_is_not_taken_for_the_best_with_more_devices() -> None:
    plan = compile_graph(marl(), gpus(1, 4))
    found = neighbours_of(plan, lambda cluster: (plan.groups[:1], 99.0))
    assert {n.devices: n.step_seconds for n in found} == {1: plan.prediction.step_seconds, -1: 99.0}


def test_what_would_differ_is_told_by_group() -> None:
    plan = compile_graph(marl(), gpus(1, 5))
    more, fewer = by_devices(plan)[1], by_devices(plan)[-1]
    named = {group.name for group in plan.groups}
    assert fewer.changes
    assert {*more.changes, *fewer.changes} <= named
    assert all(" -> " in change for change in fewer.changes.values())


def test_where_a_device_is_left_over_one_fewer_changes_nothing() -> None:
    plan = compile_graph(vlm(), gpus(1, 8), {"vit.ranks": 1, "lm.ranks": 1})
    fewer = by_devices(plan)[-1]
    assert (fewer.step_seconds, fewer.changes) == (plan.prediction.step_seconds, {})


def test_a_cluster_that_would_be_too_small_is_refused_with_the_reason() -> None:
    fewer = by_devices(compile_graph(marl(), gpus(1, 3)))[-1]
    assert fewer.step_seconds == 0
    assert "the plan needs 3 devices at least" in fewer.refusal


def test_the_only_device_of_a_kind_cannot_be_taken_away() -> None:
    plan = compile_graph(vlm(), laptop(cores=1))
    assert by_devices(plan)[-1].refusal == "it is the only one"


def test_what_a_hasty_search_finds_with_fewer_devices_is_no_faster_than_the_plan() -> None:
    plan = compile_graph(marl(), gpus(1, 4))
    found = neighbours_of(plan, lambda cluster: (plan.groups, 1e-6))
    assert {n.devices: n.step_seconds for n in found} == {1: 1e-6, -1: plan.prediction.step_seconds}


def test_another_kind_of_device_is_told_as_a_change() -> None:
    base = gpus(1, 4)
    other = replace(base.kinds[0], name="other")
    nodes = (base.nodes[0], replace(base.nodes[0], name="n1", device="other"))
    plan = compile_graph(marl(), replace(base, kinds=(*base.kinds, other), nodes=nodes))
    group = next(g for g in plan.groups if g.name == "solver.gang")
    there = tuple(replace(p, node="n1" if p.node == "n0" else "n0") for p in group.places)
    groups = tuple(replace(g, places=there) if g is group else g for g in plan.groups)
    more = neighbours_of(plan, lambda cluster: (groups, 1e-6))[0]
    kinds = {"n0": ("gpu", "other"), "n1": ("other", "gpu")}[group.places[0].node]
    assert list(more.changes) == ["solver.gang"]
    assert more.changes["solver.gang"].split(" -> ")[0].endswith(f" on {kinds[0]}")
    assert more.changes["solver.gang"].split(" -> ")[1].endswith(f" on {kinds[1]}")
