"""Several encoders, trained or not, before one backbone: the slowest of all sets the step."""

from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.graph import FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.types import SAMPLE, Field, Ragged, RecordType
from flowgraph.passes import compile_graph
from flowgraph.passes.match_throughput import matching_problem
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.state import State
from tests.passes.graphs import JOINED, gpus, vlm
from tests.passes.matching_instances import brute_force, pruned

SOUNDS = RecordType(
    fields=(SAMPLE, Field(name="sounds", dtype="float32", dims=(Ragged("heard"), 64))),
)
BOTH = RecordType(
    fields=(
        *JOINED.fields,
        Field(name="sounds", dtype="float32", dims=(Ragged("heard"), 64)),
    )
)


def encoders(*, frozen: bool, batch: int = 64, images: float = 1.0) -> Graph:
    """`vlm` with a second, larger encoder, of whole samples; images: of a sample."""
    graph = vlm(batch)
    ear = Module(
        name="ear",
        factory=FunctionRef(module="flowgraph.models.factories", qualname="vit"),
        description={"kind": "vit", "parameters": 400_000, "layers": 2, "width": 64, "heads": 4},
        trainable=not frozen,
    )
    hear = Stage(
        name="hear",
        op="apply",
        inputs=("samples",),
        outputs=("sounds",),
        attributes={"inputs": ("patches", "rows"), "output": "sounds"},
        modules=("ear",),
    )
    changes: dict[str, dict[str, Any]] = {
        "images": {"attributes": {"dim": "images", "expect": images}},
        "join": {"inputs": ("samples", "features", "sounds")},
        "train-lm": {"modules": ("lm", "vit") if frozen else ("lm", "vit", "ear")},
    }
    stages = [replace(stage, **changes.get(stage.name, {})) for stage in graph.stages]
    streams = [
        replace(stream, type=BOTH) if stream.name in ("joined", "packs") else stream
        for stream in graph.streams
    ]
    return replace(
        graph,
        modules=(*graph.modules, ear),
        stages=(*stages[:3], hear, *stages[3:]),
        streams=(*streams[:3], Stream(name="sounds", producer="hear", type=SOUNDS), *streams[3:]),
    )


def costed(graph: Graph, devices: int = 8) -> State:
    names = [step.name for step in PIPELINE]
    return run_passes(PIPELINE[: names.index("estimate-costs") + 1], graph, gpus(1, devices))


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "trained"])
@pytest.mark.parametrize("devices", range(3, 9))
def test_the_rate_is_the_least_over_all_parts_and_the_best_of_all_splits(
    devices: int, frozen: bool
) -> None:
    graph = encoders(frozen=frozen)
    plan = compile_graph(graph, gpus(1, devices))
    seconds = [plan.prediction.seconds[f"{name}.gang"] for name in ("vit", "ear", "lm")]
    best = brute_force(pruned(matching_problem(costed(graph, devices))))
    assert best is not None
    assert 1 / max(seconds) == pytest.approx(best[0])
    assert 1 / sum(seconds) < best[0] * 0.9, "never a sum"
    assert plan.prediction.bound_seconds == pytest.approx(max(seconds))


def test_a_frozen_encoder_is_asked_for_a_third_and_holds_weights_alone() -> None:
    frozen, trained = (costed(encoders(frozen=f)).costs["ear.gang"] for f in (True, False))
    assert {*frozen.terms} == {"weights"}
    assert {*trained.terms} == {"weights", "gradients", "optimizer", "activations"}
    assert frozen.terms["weights"] == trained.terms["weights"]
    assert 2.5 < trained.seconds / frozen.seconds < 3.5


def alone(state: State, part: str) -> float:
    """Steps/s of the part on one device."""
    options = next(p for p in matching_problem(state).parts if p.name == part).options
    return max(o.rate for o in options if o.devices == 1)


def test_demand_is_counted_in_what_an_encoder_reads_of_a_sample() -> None:
    one, three = (costed(encoders(frozen=False, images=n, batch=8192)) for n in (1.0, 3.0))
    assert alone(one, "vit.gang") / alone(three, "vit.gang") == pytest.approx(3, rel=0.1)
    assert alone(one, "ear.gang") == alone(three, "ear.gang")  # it reads whole samples


def test_the_encoder_with_the_larger_demand_gets_more_devices() -> None:
    plans = [
        compile_graph(encoders(frozen=False, images=n, batch=512), gpus(1, 8)) for n in (0.2, 12.0)
    ]
    few, many = ([p.group(f"{name}.gang").replicas for name in ("vit", "ear")] for p in plans)
    assert few[0] < few[1]
    assert many[0] > many[1]
