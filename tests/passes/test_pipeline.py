"""The compiler as a whole: order, verification, pins, determinism, what it imports."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flowgraph.ir.errors import ConfigurationError, GraphError, InternalError, PlanError
from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.plan import Plan
from flowgraph.passes import PIPELINE, compile_graph
from flowgraph.passes.explain import explain
from flowgraph.passes.pins import Pins
from flowgraph.passes.pipeline import run_passes
from flowgraph.passes.simplify import Simplify
from flowgraph.passes.state import State
from tests.passes.graphs import TASK, filtered, gpus, laptop, marl, ref, vlm


def test_passes_run_in_the_order_of_the_architecture() -> None:
    assert [step.name for step in PIPELINE] == [
        "lower-edges",
        "infer-rates",
        "check-consistency",
        "simplify",
        "plan-packing",
        "estimate-costs",
        "match-throughput",
        "bind-agents",
        "place",
        "wire",
    ]


def test_every_pass_says_what_it_requires_ensures_and_leaves() -> None:
    for step in PIPELINE:
        text = type(step).__doc__ or ""
        assert text.startswith("Requires "), step.name
        assert "Ensures " in text, step.name
        assert "Changes " in text or "changes " in text, step.name


def test_a_laptop_runs_each_part_once_and_the_plan_says_why() -> None:
    plan = compile_graph(marl(), laptop())
    assert {group.name: group.replicas for group in plan.groups} == {
        "host": 1,
        "solver.engine": 1,
        "verifier.engine": 1,
        "solver.gang": 1,
        "verifier.gang": 1,
    }
    said = [str(decision) for decision in plan.decisions]
    assert "local.workers = 5; because 2 cores, 5 workers share them: 2.5 a core" in said
    assert (plan.schedule.batch, plan.schedule.chunk, plan.schedule.unit) == (16, 4, 1)
    assert plan.group("solver.engine").slots == 64
    assert plan.group("solver.engine").max_length == 32


def test_every_edge_between_groups_has_a_channel() -> None:
    plan = compile_graph(vlm(), laptop())
    assert {channel.stream: channel.kind for channel in plan.channels} == {
        "samples": "data",
        "images": "data",
        "features": "data",
        "features.gradient": "gradient",
    }
    marl_channels = {c.stream: c.kind for c in compile_graph(marl(), laptop()).channels}
    assert marl_channels["solver.weights"] == "weights"


def test_nodes_are_joined_by_the_network_and_one_node_by_memory() -> None:
    one = compile_graph(vlm(), gpus(1, 8))
    two = compile_graph(vlm(), gpus(8, 1))
    assert {channel.transport for channel in one.channels} == {"shared-memory"}
    assert {channel.transport for channel in two.channels} == {"zeromq"}


def test_chunks_do_not_depend_on_the_cluster_or_on_pins_of_processes() -> None:
    chunks = {
        compile_graph(marl(), cluster, pins).schedule.chunk
        for cluster in (laptop(), gpus(), gpus(2))
        for pins in ({}, {"solver.ranks": 2, "solver.engines": 2, "host.replicas": 3})
    }
    assert chunks == {4}


@pytest.mark.parametrize(
    ("by", "fits", "left"),
    [
        (("sample",), 32, "expects rows in groups of 5, got 32 rows a sample"),
        (("sample", "trajectory"), 2, "expects rows in groups of 5, got 2 rows a trajectory"),
        (("sample", "call"), 16, "groups of 5, got 16 rows a sample and call"),
    ],
)
def test_the_size_of_a_group_divides_the_expected_rows_of_its_key(
    by: tuple[str, ...], fits: int, left: str
) -> None:
    graph = marl()
    agents = (replace(graph.agents[0], expect={"calls": 2}), graph.agents[1])

    def sized(size: int, **changes: Any) -> Graph:
        attributes = {"by": by, "size": size}
        stages = tuple(
            replace(s, attributes=attributes) if s.name == "solver.groups" else s
            for s in graph.stages
        )
        return replace(graph, stages=stages, **changes)

    compile_graph(sized(fits, agents=agents), laptop())
    with pytest.raises(GraphError, match=left):
        compile_graph(sized(5, agents=agents), laptop())
    undeclared = (replace(graph.agents[0], expect={}), graph.agents[1])
    compile_graph(sized(5, agents=undeclared), laptop())  # data decides


def test_expected_rates_are_exact_fractions() -> None:
    graph = marl()
    agents = (replace(graph.agents[0], expect={"calls": {"mean": 1.4}}), graph.agents[1])
    state = run_passes(PIPELINE[:2], replace(graph, agents=agents), laptop())
    assert state.rates["train-solver.credit"] == Fraction(112, 5)
    assert state.tokens["games.solver"] == 64.0


def test_a_refilled_membership_keeps_its_rate() -> None:
    assert compile_graph(filtered(), laptop()).prediction.rates["kept"] == "1"


@pytest.mark.parametrize(
    ("pins", "check"),
    [
        ({"solver.engines": 2}, lambda plan: plan.group("solver.engine").replicas == 2),
        ({"solver.engines": "2"}, lambda plan: plan.group("solver.engine").replicas == 2),
        ({"solver.slots": 8}, lambda plan: plan.group("solver.engine").slots == 8),
        ({"verifier.ranks": 2}, lambda plan: plan.group("verifier.gang").layout.dp == 2),
        ({"verifier.dp": 2}, lambda plan: plan.group("verifier.gang").layout.dp == 2),
        ({"verifier.tp": 1}, lambda plan: plan.group("verifier.gang").layout.tp == 1),
        ({"solver.engine_tp": 1}, lambda plan: plan.group("solver.engine").layout.tp == 1),
        ({"host.replicas": 3}, lambda plan: plan.group("host").replicas == 3),
        ({"schedule.chunk": 8}, lambda plan: plan.schedule.chunk == 8),
        ({"schedule.unit": 4}, lambda plan: plan.schedule.unit == 4),
        ({"schedule.ahead": 1}, lambda plan: plan.schedule.ahead == 1),
        ({"schedule.mode": "barrier"}, lambda plan: plan.schedule.mode == "barrier"),
        (
            {"train-solver.micro_batch": 512},
            lambda plan: plan.graph.stage("train-solver").attributes["micro_batch"] == 512,
        ),
    ],
)
def test_a_pin_is_kept_and_marked(pins: Mapping[str, Any], check: Any) -> None:
    for cluster in (laptop(), gpus()):
        plan = compile_graph(marl(), cluster, pins)
        assert check(plan)
        assert [f"{d.subject}.{d.name}" for d in plan.decisions if d.pinned] == list(pins)
        assert compile_graph(replace(marl(), pins=pins), cluster) == plan


def test_a_given_pin_wins_over_the_graphs_own() -> None:
    graph = replace(marl(), pins={"solver.engines": 3})
    assert (
        compile_graph(graph, laptop(), {"solver.engines": 2}).group("solver.engine").replicas == 2
    )


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"solver.engine": 2}, "try: solver.engines (of solver: engines, slots, engine_tp,"),
        ({"sover.engines": 2}, "try: solver.engines (subjects: host, schedule, solver,"),
        ({"solver.engines": 0}, "pin solver.engines: expects a whole number of at least 1, got 0"),
        ({"solver.engines": True}, "expects a whole number of at least 1, got True"),
        (
            {"schedule.mode": "serial"},
            "pin schedule.mode: expects pipeline or barrier, got 'serial'",
        ),
        ({"nonsense": 1}, "pin 'nonsense': there is no such decision"),
        ({"schedule.ahead": 10**20}, "schedule.ahead: expects 256 at most, got 1"),
        ({"host.replicas": 10**9}, "host.replicas: expects 65536 at most, got 1000000000"),
    ],
)
def test_a_pin_that_cannot_be_kept_is_refused(pins: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_graph(marl(), laptop(), pins)
    assert message in str(caught.value)


def test_a_chunk_that_does_not_divide_is_refused() -> None:
    with pytest.raises(PlanError, match="which chunks of 3 do not divide"):
        compile_graph(marl(), laptop(), {"schedule.chunk": 3})


def test_more_devices_than_there_are_is_refused_with_the_sum() -> None:
    with pytest.raises(PlanError) as caught:
        compile_graph(marl(), gpus(1, 4), {"solver.engines": 3})
    assert (
        "needs 5 devices at least (solver.engine 3 + verifier.engine 1 + solver.gang and "
        "verifier.gang in turn 1)"
    ) in caught.value.what
    graph = vlm()
    wants = tuple(replace(s, devices=16) if s.op == "train" else s for s in graph.stages)
    with pytest.raises(PlanError, match="needs 17 devices at least"):
        compile_graph(replace(graph, stages=wants), gpus(1, 8))
    with pytest.raises(PlanError, match=r"needs 17 worker slots \(vit.gang 1 \+ lm.gang 16\)"):
        compile_graph(replace(graph, stages=wants), laptop())


def test_pools_shrink_to_the_memory_of_the_node_but_hold_a_step() -> None:
    roomy, tight = laptop(), laptop()
    nodes = (replace(tight.nodes[0], memory_bytes=1 << 30),)
    plan = compile_graph(vlm(), replace(tight, nodes=nodes))
    assert plan.pool_bytes == 148 << 20 < compile_graph(vlm(), roomy).pool_bytes
    assert max(channel.capacity_bytes for channel in plan.channels) == plan.pool_bytes
    graph = vlm()
    stages = tuple(
        replace(s, attributes={**s.attributes, "batch": 256}) if s.op == "train" else s
        for s in graph.stages
    )
    nodes = (replace(tight.nodes[0], memory_bytes=300 << 20),)
    with pytest.raises(PlanError, match=r"a step's records need .* MiB in the pool of a worker"):
        compile_graph(replace(graph, stages=stages), replace(tight, nodes=nodes))


def test_a_model_that_does_not_fit_is_refused_with_its_terms() -> None:
    graph = vlm()
    big = {**graph.module("lm").description, "parameters": 32_000_000_000}
    modules = (graph.modules[0], replace(graph.modules[1], description=big))
    with pytest.raises(PlanError) as caught:
        compile_graph(replace(graph, modules=modules), gpus(1, 8), {"lm.tp": 1})
    assert (
        "lm.gang needs 238 GiB a device (weights 59.6 GiB + gradients 59.6 GiB" in caught.value.what
    )
    assert "even as pp2" in caught.value.what
    assert "a 'gpu' of cluster 'gpus' has 80 GiB" in caught.value.what


def test_more_accelerators_never_make_the_models_slower() -> None:
    plans = [compile_graph(vlm(batch=512), gpus(1, n)) for n in (2, 4, 8)]
    seconds = [max(plan.prediction.seconds[f"{m}.gang"] for m in ("vit", "lm")) for plan in plans]
    assert seconds[0] > seconds[1] > seconds[2]


def test_what_nothing_needs_is_left_out() -> None:
    graph = vlm()
    spare = Stage(name="spare", op="source", outputs=("spare",), function=ref("f"))
    more = replace(
        graph,
        stages=(*graph.stages, spare),
        streams=(*graph.streams, Stream(name="spare", producer="spare", type=TASK)),
    )
    # A verified graph has no stream that nothing reads: the pass itself is asked.
    state = Simplify().apply(State(graph=more, cluster=laptop(), pins=Pins()))
    assert state.graph == graph
    assert [str(d) for d in state.decisions] == [
        "spare.removed = True; because nothing reads what it makes"
    ]


def test_compiling_a_plans_graph_again_gives_the_same_tasks() -> None:
    plan = compile_graph(vlm(), laptop())
    again = compile_graph(plan.graph, laptop())
    assert again.tasks == plan.tasks
    assert again.graph.streams == plan.graph.streams


def test_the_graph_given_is_not_changed() -> None:
    graph, before = marl(), repr(marl())
    compile_graph(graph, laptop(), {"train-solver.micro_batch": 5000})
    assert repr(graph) == before


@dataclass(frozen=True, slots=True)
class Careless:
    """Leaves out a stage whose stream is read."""

    name: ClassVar[str] = "careless"

    def apply(self, state: State) -> State:
        return replace(state, graph=replace(state.graph, stages=state.graph.stages[1:]))


@dataclass(frozen=True, slots=True)
class Broken:
    """Raises."""

    name: ClassVar[str] = "broken"

    def apply(self, state: State) -> State:
        raise ZeroDivisionError("by zero")


def test_a_pass_that_breaks_the_graph_is_named_with_those_before_it() -> None:
    with pytest.raises(InternalError) as caught:
        run_passes((PIPELINE[0], Careless()), vlm(), laptop())
    assert "pass careless (after lower-edges) made a graph that is not legal" in caught.value.what
    assert 'stream "samples"' in caught.value.what
    assert caught.value.exit_code == 70


def test_a_pass_that_raises_is_named() -> None:
    with pytest.raises(InternalError, match=r"pass broken \(the first\) failed: ZeroDivisionError"):
        run_passes((Broken(),), vlm(), laptop())


def test_an_illegal_graph_is_refused_before_any_pass() -> None:
    with pytest.raises(GraphError, match="expects batch >= 1"):
        compile_graph(vlm(batch=0), laptop())


@pytest.mark.parametrize("graph", [marl(), vlm(), filtered()], ids=["marl", "vlm", "filtered"])
def test_the_explanation_names_every_part_of_the_plan(graph: Graph) -> None:
    plan: Plan = compile_graph(graph, gpus(2, 4))
    text = explain(plan)
    for name in (*(group.name for group in plan.groups), *(task.name for task in plan.tasks)):
        assert name in text
    for channel in plan.channels:
        assert channel.stream in text
    for decision in plan.decisions:
        assert str(decision) in text


def test_a_reference_counts_in_its_trainers_memory() -> None:
    graph = marl()
    frozen = replace(graph.module("solver"), name="before", trainable=False)
    stages = tuple(
        replace(s, attributes={**s.attributes, "reference": "before"})
        if s.name == "train-solver"
        else s
        for s in graph.stages
    )
    plain = compile_graph(graph, laptop()).prediction.memory_bytes["solver.gang"]
    more = replace(graph, modules=(*graph.modules, frozen), stages=stages)
    assert compile_graph(more, laptop()).prediction.memory_bytes["solver.gang"] == plain + 4 * 98304


@pytest.mark.parametrize(
    "code",
    [
        "import flowgraph.passes\n",
        "from flowgraph.passes import compile_graph\n"
        "from tests.passes.graphs import marl, gpus\n"
        "compile_graph(marl(), gpus())\n",
    ],
    ids=["import", "compile"],
)
def test_compiling_imports_nothing_slow(code: str) -> None:
    slow = ("torch", "zmq", "pulp", "networkx", "numpy", "cattrs", "msgpack")
    code += f"import sys; print([name for name in {slow} if name in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "[]"
