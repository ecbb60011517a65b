"""Measured numbers take the place of estimates, where they hold, and the plan says so."""

import math
from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.errors import ConfigurationError, PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.index import index
from flowgraph.ir.plan import Layout
from flowgraph.passes import compile_graph
from flowgraph.passes.explain import explain
from flowgraph.passes.headroom import deviation, headrooms, length_spreads
from flowgraph.passes.layout_costs import engine_estimate, gang_estimate
from flowgraph.passes.layouts import gang_layouts, instance_counts, named, shares
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.state import State
from flowgraph.passes.works import engine_work, gang_work, places_of
from flowgraph.runtime.policy.roofline import shape_of
from tests.passes.graphs import filtered, gpus, laptop, marl, vlm

MEASURED = {
    "device": "core",
    "values": {
        "solver.gang.token_s": {"value": 1e-3, "spread": 0.1, "count": 20},
        "solver.engine.iteration_s": {"value": 2e-3, "spread": 0.2, "count": 9},
        "solver.calls": {"value": 1.25, "spread": 0.5, "count": 64},
    },
}


def estimated(graph: Graph, cluster: Any = None, **changes: Any) -> State:
    names = [step.name for step in PIPELINE]
    steps = PIPELINE[: names.index("estimate-costs") + 1]
    return run_passes(steps, graph, cluster or laptop(), **changes)


def test_measured_times_and_data_replace_estimates_and_expectations() -> None:
    plan = compile_graph(marl(), laptop(), costs=MEASURED)
    said = {d.subject: d.binding for d in plan.decisions if d.name == "cost"}
    assert said["solver.gang"].startswith("measured: token_s 0.001 ± 10 % of 20; estimated: ")
    assert said["verifier.gang"].startswith("estimated: ")
    assert plan.prediction.rates["games.solver"] == "20"
    assert plan.prediction.measured == ("solver.engine", "solver.gang")
    assert "(measured; estimated: host, verifier.engine, verifier.gang)" in explain(plan)
    # 16 samples x 16 trajectories x 1.25 calls x 11 tokens, at a millisecond each.
    assert plan.prediction.seconds["solver.gang"] == pytest.approx(3.52, rel=0.01)


def test_times_of_another_kind_of_device_are_left_out_and_data_are_not() -> None:
    plan = compile_graph(marl(), gpus(), costs=MEASURED)
    assert plan.prediction.measured == ()
    assert plan.prediction.rates["games.solver"] == "20"
    assert compile_graph(marl(), gpus()).prediction.seconds["solver.gang"] < 1


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"value": {}}, "costs: expects device and values, got 'value'"),
        ({"device": 3}, "costs: expects device, the name of a kind, and a map of values"),
        ({"values": {"solver.gang.tokens": 1}}, "nothing of this graph is called 'solver.gang.t"),
        ({"values": {"solver.calls": 0}}, "solver.calls: expects a value above 0, got 0"),
        ({"values": {"solver.calls": {"value": math.inf}}}, "expects a value above 0, got inf"),
        ({"values": {"solver.calls": {"value": 1, "spread": -1}}}, "a spread above 0, got -1"),
        ({"values": {"solver.calls": {"mean": 1}}}, "expects value, spread, count, got 'mean'"),
    ],
)
def test_costs_out_of_shape_are_refused(costs: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_graph(marl(), laptop(), costs=costs)
    assert message in caught.value.what


def test_parameters_that_were_counted_are_the_models() -> None:
    graph = vlm()
    unknown = {**graph.module("vit").description, "parameters": None}
    modules = (replace(graph.modules[0], description=unknown), graph.modules[1])
    costs = {"values": {"vit.parameters": 5_000_000}}
    state = estimated(replace(graph, modules=modules), costs=costs)
    assert state.costs["vit.gang"].terms["weights"] == 20_000_000


def test_a_layout_divides_what_it_splits_and_pays_for_the_bytes() -> None:
    state = estimated(vlm(batch=512), gpus(2, 8))
    place = places_of(state)[0]
    work = gang_work(state, state.graph.module("lm"), place)
    one = gang_estimate(work, Layout(), place)
    split = gang_estimate(work, Layout(tp=2), place)
    for term in ("weights", "gradients", "optimizer"):
        assert split.terms[term] == one.terms[term] / 2
    assert one.terms["activations"] / 2 < split.terms["activations"] < one.terms["activations"]
    assert one.seconds / 2 < split.seconds
    again = gang_estimate(work, Layout(recompute=True), place)
    assert again.terms["activations"] < one.terms["activations"]
    assert again.seconds > one.seconds
    piped = gang_estimate(work, Layout(pp=2), place)
    assert one.seconds / 2 < piped.seconds < one.seconds
    assert piped.terms["weights"] == one.terms["weights"] / 2


def test_bytes_that_ranks_send_one_another_take_their_time() -> None:
    state = estimated(vlm(batch=512), gpus(2, 8))
    place = places_of(state)[0]
    work = gang_work(state, state.graph.module("lm"), place)
    slow = replace(place, intra=place.intra / 2)
    sizes = {
        # 2 layers x (2 forward + 2 backward) all-reduces of all tokens, 2 (tp - 1) / tp = 1.
        Layout(tp=2): 2 * 4 * work.tokens * 96 * 4,
        # One all-reduce of half of the gradients' bytes, twice.
        Layout(dp=2): work.model.shape.parameters * 4,
        # Activations between the two halves of the layers, forward and backward.
        Layout(pp=2): 2 * work.tokens * 96 * 4,
        # Keys and values of the other half of each sequence, three times a layer; and gradients.
        Layout(cp=2): 3 * 2 * (work.tokens / 2) * 2 * 96 * 4 + work.model.shape.parameters * 4,
    }
    for layout, size in sizes.items():
        fast, slower = (gang_estimate(work, layout, where).seconds for where in (place, slow))
        assert slower - fast == pytest.approx(size / place.intra), named(layout)
    far = gang_estimate(work, Layout(dp=16), replace(place, inter=1.0)).seconds
    assert far > work.model.shape.parameters * 4  # over the network, a byte a second


def test_optimizers_hold_as_many_moments_as_torchs_do() -> None:
    def moments(**settings: Any) -> float:
        graph = vlm()
        stages = tuple(
            replace(s, attributes={**s.attributes, "optimizer": {"lr": 1e-3, **settings}})
            if s.op == "train"
            else s
            for s in graph.stages
        )
        terms = estimated(replace(graph, stages=stages)).costs["lm.gang"].terms
        return terms["optimizer"] / terms["weights"]

    assert moments(name="adamw") == 2
    assert moments(name="adam", amsgrad=True) == 3
    assert moments(name="sgd", momentum=0.9) == 1
    assert moments(name="sgd") == 0


def test_layouts_divide_heads_layers_and_units() -> None:
    state = estimated(marl(), gpus())
    place = places_of(state)[0]
    work = gang_work(state, state.graph.module("solver"), place)
    found = list(gang_layouts(work, 8, 8))
    assert {layout.tp for layout in found} == {1, 2, 4}  # 4 heads
    assert {layout.pp for layout in found} == {1, 2}  # 2 layers
    assert {layout.cp for layout in found} == {1}  # short sequences
    assert max(layout.ranks for layout in found) == 8
    assert shares(16, 16) == [1, 2, 3, 4, 6, 8, 16]
    assert instance_counts(40)[-3:] == [36, 38, 40]
    assert named(Layout(dp=4, tp=2, recompute=True)) == "dp4 x tp2, recomputing"


def test_more_engines_than_calls_are_open_at_once_are_no_faster() -> None:
    state = estimated(marl(), gpus())
    place = places_of(state)[0]
    work = engine_work(state, state.graph.agent("solver"), place)
    alone = engine_estimate(work, Layout(), 1, place).seconds
    many = [engine_estimate(work, Layout(), n, place).seconds for n in (2, 8, 64)]
    assert alone > many[0] > many[1] > many[2] > alone / 2


def test_a_spread_of_the_demand_leaves_headroom() -> None:
    assert deviation(3) == 0.0
    assert deviation({"mean": 2.0, "spread": 0.5}) == 0.5
    assert deviation({"mean": 1.0, "p95": 2.645}) == pytest.approx(1.0)
    graph = marl()
    wide = replace(graph.agents[0], expect={"calls": {"mean": 1.5, "p95": 4}})
    rooms = headrooms(estimated(replace(graph, agents=(wide, graph.agents[1]))))
    assert rooms["solver.engine"] == rooms["solver.gang"] == pytest.approx(1.104, abs=0.001)
    assert rooms["verifier.engine"] == 1.0


def test_a_pinned_layout_is_kept_and_one_that_cannot_be_is_refused() -> None:
    plan = compile_graph(vlm(), gpus(), {"lm.tp": 2, "lm.pp": 2})
    assert plan.group("lm.gang").layout.tp == plan.group("lm.gang").layout.pp == 2
    for pins, message, smallest in (
        ({"lm.tp": 3}, "pin lm.tp=3: heads and nodes allow 1, 2, 4", "lm.tp=2"),
        ({"lm.pp": 5}, "pin lm.pp=5: layers and devices allow 1, 2", "lm.pp=2"),
        ({"lm.dp": 9}, "lm.gang: lm.dp=9 take 9 devices, cluster", "with 1 more device"),
        ({"lm.dp": 3, "lm.ranks": 4}, "no layout as lm.dp=3, lm.ranks=4 exists on the 8", "layers"),
    ):
        with pytest.raises(PlanError) as caught:
            compile_graph(vlm(), gpus(), pins)
        assert message in caught.value.what
        assert smallest in str(caught.value.hint)
    with pytest.raises(PlanError, match="heads and nodes allow 1, 2, 4"):
        compile_graph(marl(), gpus(), {"solver.engine_tp": 3})
    with pytest.raises(PlanError, match="cores take whole models"):
        compile_graph(vlm(), laptop(), {"lm.tp": 2})


def test_what_filters_reject_of_the_source_is_made_too() -> None:
    whole, half = (compile_graph(graph, laptop()).prediction for graph in (vlm(), filtered()))
    assert half.seconds["host"] == pytest.approx(2 * whole.seconds["host"])  # `keep` expects 0.5


def test_a_tp_group_shares_a_node_and_has_neighbouring_devices() -> None:
    plan = compile_graph(vlm(), gpus(3, 4), {"lm.tp": 4, "lm.dp": 2, "vit.tp": 1})
    places = plan.group("lm.gang").places
    for i in range(0, len(places), 4):
        piece = places[i : i + 4]
        assert len({place.node for place in piece}) == 1
        assert [place.device for place in piece] == [0, 1, 2, 3]


def test_places_do_not_depend_on_names_of_nodes_or_on_runs() -> None:
    first, again = compile_graph(marl(), gpus(2, 4)), compile_graph(marl(), gpus(2, 4))
    assert [g.places for g in first.groups] == [g.places for g in again.groups]


def test_engines_may_take_each_others_places_but_for_one_of_each_agent() -> None:
    plan = compile_graph(marl(), gpus(), {"solver.engines": 4, "verifier.engines": 2})
    rooms = {room.group: room for room in plan.rooms}
    assert (rooms["solver.engine"].least, rooms["solver.engine"].most) == (1, 5)
    assert (rooms["verifier.engine"].least, rooms["verifier.engine"].most) == (1, 5)
    gang = rooms["solver.gang"]
    assert gang.least == gang.most == plan.group("solver.gang").replicas
    assert all(room.move_seconds > 0 for room in plan.rooms)
    devices = [option.replicas for option in gang.alternatives]
    assert devices == sorted(devices)
    assert plan.group("solver.gang").replicas not in devices


def test_lengths_that_spread_make_attention_dearer_by_their_squares() -> None:
    graph = marl()
    even = replace(graph.agents[0], expect={"calls": 1, "prompt": 4000, "response": 1000})
    uneven = replace(even, expect={**even.expect, "prompt": {"mean": 4000, "spread": 0.5}})

    def token_s(agent: Any) -> float:
        state = estimated(replace(graph, agents=(agent, graph.agents[1])))
        return gang_work(state, state.graph.module("solver"), places_of(state)[0]).token_s

    module = shape_of(graph.module("solver"))
    spread = (0.5 * 4000) ** 2 / 5000  # of the variance over the mean length
    more = module.flops_a_token(5000 + spread) / module.flops_a_token(5000)
    assert token_s(uneven) / token_s(even) == pytest.approx(more)


def test_spreads_of_a_source_pass_through_what_keeps_its_records() -> None:
    graph = vlm()
    told = {"tokens": {"mean": 64, "spread": 0.25}}
    source = replace(graph.stages[0], attributes={**graph.stages[0].attributes, "expect": told})
    found = length_spreads(index(replace(graph, stages=(source, *graph.stages[1:]))))
    assert found["samples"] == found["joined"] == found["packs"] == 0.25
    assert length_spreads(index(graph)) == {}


def test_a_cache_is_split_over_its_heads_and_copied_beyond_them() -> None:
    graph = marl()
    few = {**graph.module("solver").description, "heads": 8, "kv_heads": 2}
    modules = (replace(graph.modules[0], description=few), graph.modules[1])
    state = estimated(replace(graph, modules=modules), gpus())
    place = places_of(state)[0]
    work = engine_work(state, state.graph.agent("solver"), place)
    sizes = {tp: engine_estimate(work, Layout(tp=tp), 1, place).terms for tp in (1, 2, 4)}
    assert sizes[1]["KV cache"] == work.slots * work.max_length * work.kv_bytes
    assert sizes[2]["KV cache"] == sizes[4]["KV cache"] == sizes[1]["KV cache"] / 2
    assert sizes[4]["weights"] == sizes[1]["weights"] / 4


def test_activations_are_kept_for_all_layers_or_made_again_from_their_inputs() -> None:
    state = estimated(vlm(), gpus())
    place = places_of(state)[0]
    work = gang_work(state, state.graph.module("lm"), place)
    kept, again = (
        gang_estimate(work, Layout(recompute=r), place).terms["activations"] for r in (False, True)
    )
    width, heads, length, layers = 96, 4, work.model.length, 2
    layer = 5 * width + 12 * width + 2.5 * heads * length
    logits = 2 * 4 * work.model.vocab
    assert kept == math.ceil(work.micro * (layer * layers * 4 + logits))
    assert again == math.ceil(work.micro * ((width * layers + layer) * 4 + logits))
    frozen = gang_estimate(replace(work, trained=False), Layout(), place)
    assert {*frozen.terms} == {"weights"}
