"""Which stages run together: borders at models, trainers and the decision of membership."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.index import index
from flowgraph.ir.plan import Task
from flowgraph.passes.tasks import form_tasks
from tests.passes.graphs import FEATURES, QUESTION, filtered, marl, ref, vlm


def tasks_of(graph: Graph) -> dict[str, Task]:
    return {task.name: task for task in form_tasks(index(graph))}


def test_a_game_is_one_task_up_to_its_trainers() -> None:
    tasks = tasks_of(marl())
    assert list(tasks) == ["games", "train-solver", "train-verifier"]
    games = tasks["games"]
    assert games.stages == (
        "tasks",
        "games",
        "solver.groups",
        "verifier.groups",
        "train-solver.credit",
        "train-verifier.credit",
    )
    assert (games.kind, games.group, games.versioned, games.gated) == ("host", "host", True, True)
    assert games.outputs == ("train-solver.credit", "train-verifier.credit")
    assert tasks["train-solver"].inputs == ("train-solver.credit",)
    assert tasks["train-solver"].group == "solver.gang"


def test_join_and_pack_are_done_by_the_trainer() -> None:
    tasks = tasks_of(vlm())
    assert list(tasks) == ["samples", "encode", "train-lm"]
    assert tasks["samples"].outputs == ("samples", "images")
    assert not tasks["samples"].versioned
    assert tasks["encode"].group == "vit.gang"
    assert tasks["train-lm"].stages == ("join", "pack", "train-lm")
    assert tasks["train-lm"].inputs == ("samples", "features")


def test_filters_run_in_a_task_before_membership_and_the_rest_after() -> None:
    tasks = tasks_of(filtered())
    assert tasks["samples"].stages == ("samples", "clean", "keep")
    assert not tasks["samples"].gated
    assert tasks["images"].stages == ("images",)
    assert tasks["images"].gated
    assert all(task.gated for name, task in tasks.items() if name != "samples")


def test_a_filter_of_items_does_not_decide_membership() -> None:
    graph = vlm()
    items = graph.stream("images").type
    keep = Stage(name="keep", op="filter", inputs=("images",), outputs=("kept",), function=ref("f"))
    encode = replace(graph.stage("encode"), inputs=("kept",))
    stages = (*graph.stages[:2], keep, encode, *graph.stages[3:])
    made = Stream(name="kept", producer="keep", type=items)
    tasks = tasks_of(replace(graph, stages=stages, streams=(*graph.streams, made)))
    assert tasks["samples"].stages == ("samples", "images", "keep")
    assert tasks["samples"].gated


def test_two_trainers_of_one_join_each_do_it() -> None:
    graph = vlm()
    other = replace(graph.stage("train-lm"), name="train-other", modules=("other",))
    module = replace(graph.module("lm"), name="other")
    graph = replace(graph, modules=(*graph.modules, module), stages=(*graph.stages, other))
    tasks = tasks_of(graph)
    assert tasks["train-lm"].stages == ("join", "pack", "train-lm")
    assert tasks["train-other"].stages == ("join", "pack", "train-other")


def test_a_join_that_a_map_reads_is_done_by_the_host_behind_the_model() -> None:
    graph = vlm()
    change = Stage(name="mix", op="map", inputs=("joined",), outputs=("mixed",), function=ref("f"))
    pack = replace(graph.stage("pack"), inputs=("mixed",))
    mixed = Stream(name="mixed", producer="mix", type=graph.stream("joined").type)
    stages = (*graph.stages[:4], change, pack, *graph.stages[5:])
    tasks = tasks_of(replace(graph, stages=stages, streams=(*graph.streams, mixed)))
    assert tasks["join"].stages == ("join", "mix")
    assert tasks["join"].inputs == ("samples", "features")
    assert tasks["train-lm"].stages == ("pack", "train-lm")


def any_graph(moves: list[tuple[int, int, int]]) -> Graph:
    """A source, then maps, applies and joins of what is there, then a trainer of the last."""
    stages = [Stage(name="s0", op="source", outputs=("s0",), function=ref("f"))]
    for i, (op, first, second) in enumerate(moves, 1):
        one, two = f"s{first % i}", f"s{second % i}"
        options: tuple[dict[str, Any], ...] = (
            {"op": "map", "inputs": (one,), "function": ref("f")},
            {"op": "apply", "inputs": (one,), "modules": ("vit",)},
            {"op": "join", "inputs": (one, two)},
            {"op": "pack", "inputs": (one,)},
        )
        stages.append(Stage(name=f"s{i}", outputs=(f"s{i}",), **options[op]))
    stages.append(Stage(name="end", op="train", inputs=(f"s{len(moves)}",), modules=("lm",)))
    streams = tuple(
        Stream(name=s.name, producer=s.name, type=FEATURES if s.op == "apply" else QUESTION)
        for s in stages[:-1]
    )
    return replace(vlm(), stages=tuple(stages), streams=streams)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)), max_size=12))
def test_tasks_never_wait_for_each_other_in_a_circle(moves: list[tuple[int, int, int]]) -> None:
    graph = any_graph(moves)
    made: set[str] = set()
    tasks = form_tasks(index(graph))
    for task in tasks:
        assert made.issuperset(task.inputs)
        made.update(task.outputs)
    run = [name for task in tasks for name in task.stages]
    assert {stage.name for stage in graph.stages} == set(run)
    repeated = {name for name in run if run.count(name) > 1}
    assert all(graph.stage(name).op in ("join", "pack") for name in repeated)
