"""Faults that people hit when planning: splits never tried, graphs that cannot fit or fill."""

from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.errors import GraphError, PlanError
from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.passes import compile_graph
from flowgraph.passes.match_throughput import matching_problem
from flowgraph.passes.pipeline import PIPELINE, run_passes
from tests.passes.graphs import QUESTION, filtered, gpus, laptop, marl, ref, vlm
from tests.passes.matching_instances import brute_force, pruned


def twins() -> Graph:
    """Encoder and backbone of the same size, so that both take about as long."""
    graph = vlm()
    lm = graph.module("lm")
    return replace(graph, modules=(replace(graph.modules[0], description=lm.description), lm))


def test_a1_two_equal_stages_on_two_devices_get_one_each() -> None:
    plan = compile_graph(twins(), gpus(1, 2))
    assert {g.name: g.replicas for g in plan.groups if g.kind == "gang"} == {
        "vit.gang": 1,
        "lm.gang": 1,
    }


@pytest.mark.parametrize("devices", range(2, 9))
@pytest.mark.parametrize("graph", [vlm(), twins(), marl()], ids=["vlm", "twins", "marl"])
def test_a1_the_plans_rate_is_the_best_of_all_splits(graph: Graph, devices: int) -> None:
    cluster = gpus(1, devices)
    if graph.agents and devices < 4:
        return  # trainers then take turns: see below
    names = [step.name for step in PIPELINE]
    state = run_passes(PIPELINE[: names.index("estimate-costs") + 1], graph, cluster)
    best = brute_force(pruned(matching_problem(state)))
    assert best is not None
    plan = compile_graph(graph, cluster)
    seconds = [plan.prediction.seconds[g.name] for g in plan.groups if g.kind != "stage"]
    assert 1 / max(seconds) == pytest.approx(best[0])
    assert sum(g.replicas for g in plan.groups if g.kind != "stage") == best[2]


def test_a1_trainers_take_turns_when_devices_are_short() -> None:
    plan = compile_graph(marl(), gpus(1, 3))
    shared = plan.group("verifier.gang")
    assert shared.shares == "solver.gang"
    assert shared.places == plan.group("solver.gang").places
    assert {group.name: group.turn for group in plan.groups if group.kind == "gang"} == {
        "solver.gang": 0,
        "verifier.gang": 1,
    }


@pytest.mark.parametrize(
    ("graph", "cluster", "pins", "message", "smallest"),
    [
        (
            vlm(),
            gpus(1, 1),
            {},
            "needs 2 devices at least (vit.gang 1 + lm.gang 1), cluster 'gpus' has 1",
            "a cluster with 1 more device, or",
        ),
        (
            marl(),
            gpus(1, 2),
            {},
            "needs 3 devices at least (solver.engine 1 + verifier.engine 1 + solver.gang and "
            "verifier.gang in turn 1), cluster 'gpus' has 2",
            "a cluster with 1 more device, or",
        ),
        (
            vlm(),
            gpus(2, 4),
            {"lm.tp": 4, "lm.pp": 2},
            "needs 9 devices at least (vit.gang 1 + lm.gang 8)",
            "1 more device, or fewer pinned",
        ),
        (
            marl(),
            laptop(cores=1, slots=3),
            {},
            "needs 4 worker slots (solver.gang 1",
            "a cluster with 1 more",
        ),
    ],
    ids=["devices", "agents", "pins", "slots"],
)
def test_a2_what_cannot_fit_names_the_constraint_and_the_smallest_change(
    graph: Graph, cluster: Cluster, pins: dict[str, Any], message: str, smallest: str
) -> None:
    with pytest.raises(PlanError) as caught:
        compile_graph(graph, cluster, pins)
    assert message in caught.value.what
    assert smallest in str(caught.value.hint)


def test_a2_the_smallest_change_that_is_named_is_enough() -> None:
    with pytest.raises(PlanError):
        compile_graph(vlm(), gpus(1, 1))
    compile_graph(vlm(), gpus(1, 2))
    with pytest.raises(PlanError, match="3 devices at least"):
        compile_graph(marl(), gpus(1, 2))
    compile_graph(marl(), gpus(1, 3))


def test_a2_pieces_that_no_node_holds_whole_are_named() -> None:
    cluster = gpus(2, 3)
    with pytest.raises(PlanError) as caught:
        compile_graph(vlm(), cluster, {"lm.tp": 2, "lm.pp": 2, "vit.tp": 2})
    assert "do not hold them whole (vit.gang in pieces of 2, lm.gang in pieces of 2)" in (
        caught.value.what
    )


def test_a2_helper_processes_count() -> None:
    cluster = laptop()
    nodes = (replace(cluster.nodes[0], memory_bytes=300 << 20),)
    with pytest.raises(PlanError) as caught:
        compile_graph(marl(), replace(cluster, nodes=nodes))
    assert (
        "node 'local' has 300 MiB, and its processes need 384 MiB at the very least (5 workers + "
        "the orchestrator, 64 MiB each)"
    ) in caught.value.what
    assert caught.value.hint == "2 fewer workers there, or 384 MiB"


def at_end(policy: str, batch: int, steps: int) -> Graph:
    graph = vlm(batch, steps=steps)
    source = replace(graph.stages[0], attributes={"at_end": policy})
    return replace(graph, stages=(source, *graph.stages[1:]))


SIZE = {"values": {"samples.size": 10}}


@pytest.mark.parametrize(("policy", "steps"), [("drop", 2), ("short", 3)])
def test_f2_a_source_that_ends_early_says_how_many_steps_it_makes(policy: str, steps: int) -> None:
    plan = compile_graph(at_end(policy, batch=4, steps=5), laptop(), costs=SIZE)
    told = next(d for d in plan.decisions if d.subject == "samples" and d.name == "steps")
    assert told.value == steps
    assert told.binding == (f"10 samples and at_end={policy!r} make no more steps of 4; 5 asked")


def test_f2_a_source_that_is_repeated_has_all_steps() -> None:
    plan = compile_graph(at_end("loop", batch=4, steps=5), laptop(), costs=SIZE)
    assert not [d for d in plan.decisions if d.name == "steps"]


def test_f2_a_step_that_can_never_be_complete_is_refused() -> None:
    with pytest.raises(GraphError) as caught:
        compile_graph(at_end("drop", batch=16, steps=5), laptop(), costs=SIZE)
    assert caught.value.what == (
        "source 'samples': 10 samples, and a step needs 16: with at_end='drop' no step is ever "
        "complete"
    )
    assert caught.value.hint == 'at_end="loop", or batch=10'


def test_f3_a_filter_before_a_step_is_refilled_from_the_source() -> None:
    plan = compile_graph(filtered(), laptop())
    told = next(d for d in plan.decisions if d.subject == "kept" and d.name == "rate")
    assert (told.value, told.binding) == (
        "1",
        "membership refills from the source what the filter rejects",
    )


def test_f3_rows_that_a_filter_takes_from_groups_of_a_fixed_size_are_refused() -> None:
    graph = marl(size=8)
    keep = Stage(
        name="keep",
        op="filter",
        inputs=("games.solver",),
        outputs=("kept",),
        function=ref("good"),
        at=graph.stage("games").at,
    )
    rows = graph.stream("games.solver")
    stages = tuple(
        replace(s, inputs=("kept",)) if s.name == "solver.groups" else s for s in graph.stages
    )
    broken = replace(
        graph,
        stages=(*stages, keep),
        streams=(*graph.streams, Stream(name="kept", producer="keep", type=rows.type)),
    )
    with pytest.raises(GraphError) as caught:
        compile_graph(broken, laptop())
    assert "24 rows a sample in, fewer than 24 out, no refill: filter 'keep'" in caught.value.what
    assert caught.value.at == graph.stage("solver.groups").at


def test_f3_partners_that_a_filter_leaves_out_are_refused() -> None:
    graph = filtered()
    labels = Stage(name="labels", op="source", outputs=("labels",), function=ref("labels"))
    stages = tuple(
        replace(s, inputs=(*s.inputs, "labels")) if s.op == "join" else s for s in graph.stages
    )
    label = replace(QUESTION, fields=(QUESTION.fields[0],))
    more = replace(
        graph,
        stages=(*stages[:3], labels, *stages[3:]),
        streams=(*graph.streams, Stream(name="labels", producer="labels", type=label)),
    )
    with pytest.raises(GraphError) as caught:
        compile_graph(more, laptop())
    assert "N samples in, fewer than N out, no refill: filter 'keep'" in caught.value.what
    assert "from 'labels' would wait for ever" in caught.value.what
