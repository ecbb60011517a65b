"""Which version is trained on: proved from the edges, bounded where that is declared."""

from dataclasses import replace
from pathlib import Path

import pytest

from flowgraph.cli.main import main
from flowgraph.ir.binary import encode
from flowgraph.ir.errors import GraphError, PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.index import index
from flowgraph.ir.verify.runnable import unrunnable, verify_runnable
from flowgraph.passes import compile_graph
from flowgraph.passes.check_consistency import StepOrder, step_order
from flowgraph.passes.explain import explain
from tests.passes.graphs import gpus, laptop, marl, vlm


def late(graph: Graph, bound: int) -> Graph:
    stages = tuple(
        replace(s, attributes={**s.attributes, "staleness": bound}) if s.op == "train" else s
        for s in graph.stages
    )
    return replace(graph, stages=stages)


def staleness(graph: Graph) -> dict[str, int]:
    plan = compile_graph(graph, laptop())
    return {d.subject: d.value for d in plan.decisions if d.name == "staleness"}


def test_training_is_synchronous_unless_declared() -> None:
    assert staleness(marl()) == {"solver": 0, "verifier": 0}
    assert staleness(vlm()) == {"lm": 0, "vit": 0}


def test_a_declared_bound_is_the_delay_of_the_weights_and_the_plan_says_so() -> None:
    graph = late(marl(), 2)
    assert staleness(graph) == {"solver": 2, "verifier": 2}
    plan = compile_graph(graph, laptop())
    assert plan.graph.stream("solver.weights").delay == 3
    assert plan.schedule.ahead == 2
    assert "training is late by a bounded number of updates: solver by 2" in explain(plan)


def test_a_bound_that_the_buffer_cannot_reach_is_refused() -> None:
    with pytest.raises(GraphError) as caught:
        compile_graph(late(marl(), 3), laptop(), {"schedule.ahead": 1})
    assert "staleness=3 cannot be reached, since schedule.ahead=1" in caught.value.what
    assert caught.value.hint == "schedule.ahead=3, or staleness=1"


def test_a_bound_beyond_all_buffers_is_refused_with_one_that_is_not() -> None:
    with pytest.raises(GraphError, match=r"schedule\.ahead=256 lets samples of 256") as caught:
        compile_graph(late(marl(), 10**9), laptop())
    assert caught.value.hint == "staleness=256"
    compile_graph(late(marl(), 256), laptop())


def test_a_bound_below_nothing_is_refused() -> None:
    with pytest.raises(GraphError, match="staleness >= 0"):
        compile_graph(late(marl(), -1), laptop())


def test_with_bound_0_update_load_generate_train_are_in_this_order() -> None:
    graph = compile_graph(marl(), laptop()).graph
    edges = step_order(index(graph)).edges
    assert (("train-solver", "run"), ("solver", "update"), 0) in edges
    assert (("solver", "update"), ("solver", "load"), 1) in edges
    assert (("solver", "load"), ("games", "run"), 0) in edges
    assert step_order(index(graph)).cycle() == []


def test_an_encoder_runs_backward_behind_its_trainer_and_before_its_update() -> None:
    graph = compile_graph(vlm(), laptop()).graph
    edges = step_order(index(graph)).edges
    assert (("train-lm", "run"), ("encode", "backward"), 0) in edges
    assert (("encode", "backward"), ("vit", "update"), 0) in edges


def test_weights_of_the_same_step_make_a_step_that_never_ends() -> None:
    order = StepOrder()
    order.before(("train", "run"), ("lm", "update"))
    order.before(("lm", "update"), ("lm", "load"))
    order.before(("lm", "load"), ("train", "run"))
    assert sorted(order.cycle()) == [("lm", "load"), ("lm", "update"), ("train", "run")]
    order.edges[1] = (*order.edges[1][:2], 1)
    assert order.cycle() == []


def test_what_runs_cannot_do_yet_is_refused_by_name() -> None:
    verify_runnable(compile_graph(marl(), laptop()))
    with pytest.raises(PlanError, match="declares staleness=2, and runs are synchronous"):
        verify_runnable(compile_graph(late(marl(), 2), laptop()))
    split = compile_graph(vlm(), gpus(), {"lm.tp": 2})
    with pytest.raises(PlanError, match=r"'lm.gang': its layout has tp=2") as caught:
        verify_runnable(split)
    assert caught.value.hint == "compile again with --pin lm.tp=1"
    shared = [fault.what for fault in unrunnable(compile_graph(marl(), gpus(1, 3)))]
    assert shared == [
        "group 'verifier.gang' takes turns with 'solver.gang' on the same devices, which runs do "
        "not"
    ]


def test_the_run_command_refuses_such_a_plan_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "split.fgplan"
    file.write_bytes(encode(compile_graph(vlm(), gpus(), {"lm.tp": 2})))
    folder = tmp_path / "run"
    assert main(["run", str(file), "--run-dir", str(folder)]) == 2
    assert "its layout has tp=2, and runs split the data only" in capsys.readouterr().err
    assert not folder.exists()
