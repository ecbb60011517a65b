"""The set-ups of the two papers compile without a device, and to plans that make sense."""

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.cli.target import cluster_for
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.passes.layouts import named
from tests.conftest import Golden

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
PAPERS = ROOT / "examples" / "paper"
NAMES = ("flexmarl_ma", "flowtrain_32b")


def load(name: str, **settings: str) -> Graph:
    return fg.load_graph(str(PAPERS / f"{name}.py"), settings)


def compiled(name: str, **settings: str) -> Plan:
    graph = load(name, **settings)
    return compile_graph(graph, cluster_for(graph, None))


@pytest.fixture(scope="module")
def plans() -> Mapping[str, Plan]:
    return {name: compiled(name) for name in NAMES}


def devices(plan: Plan) -> dict[str, int]:
    return {g.name: len(g.places) for g in plan.groups if g.kind != "stage"}


def summary(plan: Plan) -> str:
    """What was decided, in a few lines; seconds are rounded."""
    used = sum(devices(plan).values())
    lines = [
        f"cluster {plan.cluster.name}: {used} of {plan.cluster.total_devices} devices",
        f"a step of {plan.schedule.batch} samples: about {plan.prediction.step_seconds:.0f} s",
    ]
    for group in plan.groups:
        if group.kind == "stage":
            continue
        micro = [
            f", {stage.attributes['micro_batch']} tokens at once"
            for stage in plan.graph.by_op("train")
            if f"{stage.modules[0]}.gang" == group.name
        ]
        gigabytes = plan.prediction.memory_bytes[group.name] / 2**30
        instances = len(group.places) // group.layout.ranks
        lines.append(
            f"{group.name}: {instances} x {named(group.layout)}{''.join(micro)}, "
            f"{gigabytes:.0f} GiB a device, for {plan.prediction.seconds[group.name]:.0f} s"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_of_a_paper_is_as_its_file_shows(
    name: str, plans: Mapping[str, Plan], golden: Golden
) -> None:
    golden(GOLDEN / f"{name}.txt", summary(plans[name]))


def test_each_names_its_papers_cluster(plans: Mapping[str, Plan]) -> None:
    found = {name: plan.cluster for name, plan in plans.items()}
    assert {name: (len(c.nodes), c.total_devices) for name, c in found.items()} == {
        "flexmarl_ma": (48, 768),
        "flowtrain_32b": (8, 128),
    }


def test_agents_that_do_more_get_more_rollout_devices(plans: Mapping[str, Plan]) -> None:
    plan = plans["flexmarl_ma"]
    calls = {agent.name: agent.expect["calls"] for agent in plan.graph.agents}
    busy = sorted(calls, key=lambda name: calls[name])
    got = [devices(plan)[f"{name}.engine"] for name in busy]
    assert got == sorted(got)
    assert got[0] < got[-2] < got[-1]
    assert (calls["b"] + calls["c"]) / sum(calls.values()) > 0.76


def test_a_step_generates_as_many_tokens_as_the_paper_does(plans: Mapping[str, Plan]) -> None:
    plan = plans["flexmarl_ma"]
    tokens = sum(
        float(agent.expect["calls"]) * agent.expect["response"]["mean"]
        for agent in plan.graph.agents
    )
    trajectories = plan.schedule.batch * plan.graph.stage("play").attributes["trajectories"]
    assert trajectories == 64
    assert tokens * trajectories == pytest.approx(910.2 * 126.1, rel=0.01)


def test_the_encoder_gets_fewer_devices_than_the_backbone(plans: Mapping[str, Plan]) -> None:
    got = devices(plans["flowtrain_32b"])
    assert 0 < got["vit.gang"] < got["lm.gang"] / 8


def test_a_trained_encoder_gets_more_devices_than_a_frozen_one(plans: Mapping[str, Plan]) -> None:
    trained = devices(compiled("flowtrain_32b", encoder="trained"))
    assert trained["vit.gang"] > devices(plans["flowtrain_32b"])["vit.gang"]


@pytest.mark.parametrize("name", NAMES)
def test_large_models_are_split_within_nodes(name: str, plans: Mapping[str, Plan]) -> None:
    plan = plans[name]
    for group in plan.groups:
        if group.kind == "gang" and group.module != "vit":
            assert group.layout.tp * group.layout.pp >= 4
        tp = group.layout.tp
        for at in range(0, len(group.places), tp):
            assert len({place.node for place in group.places[at : at + tp]}) == 1


@pytest.mark.parametrize(
    ("name", "paper"),
    [("flexmarl_ma", 126.1), ("flowtrain_32b", 256 * 2600 / (884 * 128))],
)
def test_a_steps_predicted_time_is_of_the_papers_order(
    name: str, paper: float, plans: Mapping[str, Plan]
) -> None:
    assert paper / 4 < plans[name].prediction.step_seconds < paper * 4


@pytest.mark.parametrize("name", NAMES)
def test_compiling_builds_no_model_and_needs_no_torch(name: str, tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "from flowgraph.cli.main import main\n"
        "sys.argv = ['flowgraph', 'compile', sys.argv[1], '-o', sys.argv[2]]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as done:\n"
        "    assert not done.code, done.code\n"
        "print(json.dumps('torch' in sys.modules))\n"
    )
    command = [sys.executable, "-c", code, str(PAPERS / f"{name}.py"), str(tmp_path / "plan")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) is False
    assert (tmp_path / "plan").stat().st_size > 0


def test_what_a_run_would_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PAPERS))
    flexmarl, flowtrain = (importlib.import_module(name) for name in NAMES)
    (tmp_path / "tasks.jsonl").write_text('{"prompt": [1, 2], "answer": [3]}\n')
    (task,) = flexmarl.read_tasks(path=str(tmp_path / "tasks.jsonl"))
    assert (task.prompt, task.answer) == ([1, 2], [3])
    np.save(tmp_path / "poster.npy", np.zeros((60, 90, 3)))
    line = {"question": [1, 2], "answer": [3], "image": "poster.npy"}
    (tmp_path / "questions.jsonl").write_text(json.dumps(line) + "\n")
    question = flowtrain.questions(path=str(tmp_path))[0]
    assert question.patches[0].shape == (48, 588)
    assert question.tokens == [flowtrain.IMAGE] * 12 + [1, 2, 3]
    assert question.loss_mask == [0.0] * 14 + [1.0]
