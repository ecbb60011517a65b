"""`compile --print-after`, `--stop-after`, and `ir`: texts on the way to a plan, and back."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flowgraph.ir.binary import decode
from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import parse, parse_graph, parse_plan, print_text
from flowgraph.passes import PIPELINE, compile_graph
from tests.cli.commands import COUNTING, call, contents
from tests.passes.graphs import filtered, gpus, laptop, marl, vlm

Capture = pytest.CaptureFixture[str]
PASSES = [step.name for step in PIPELINE]
REWRITES = ("lower-edges", "simplify", "plan-packing")
"""Passes that leave less to decide where they ran before."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(COUNTING, tmp_path)
    return tmp_path


def texts(output: str) -> dict[str, str]:
    """What was printed after each pass."""
    parts = output.split("# after ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_print_after_all_prints_a_text_after_each_pass_and_the_plan_is_written(
    folder: Path, capsys: Capture
) -> None:
    outcome = call(capsys, "compile", "counting.py", "--print-after", "all")
    assert outcome.status == 0
    found = texts(outcome.out)
    assert list(found) == PASSES
    assert all(isinstance(parse(text), Graph) for text in list(found.values())[:-1])
    assert parse_plan(found["wire"]).graph == decode(Path("counting.fgplan").read_bytes()).graph
    assert "plan: counting.fgplan" in outcome.err


def test_print_after_names_some_passes(folder: Path, capsys: Capture) -> None:
    options = ("--print-after=simplify", "--print-after=infer-rates")
    outcome = call(capsys, "compile", "counting.py", *options)
    assert list(texts(outcome.out)) == ["infer-rates", "simplify"]
    assert '# rates = {check: "1", lines: "1"}' in outcome.out


@pytest.mark.parametrize("name", PASSES)
def test_stop_after_prints_one_text_and_writes_nothing(
    name: str, folder: Path, capsys: Capture
) -> None:
    before = contents(folder)
    outcome = call(capsys, "compile", "counting.py", "--stop-after", name)
    assert (outcome.status, outcome.err) == (0, "")
    assert contents(folder) == before
    assert isinstance(parse(outcome.out), Plan if name == "wire" else Graph)
    assert outcome.out.startswith(f"# after {name}\n")


def test_a_name_that_is_no_pass_is_answered_with_all_of_them(folder: Path, capsys: Capture) -> None:
    Path("a.fg").write_text(print_text(vlm()))
    for command, option in (
        (("compile", "counting.py"), "--stop-after"),
        (("compile", "counting.py"), "--print-after"),
        (("ir", "a.fg"), "--pass"),
        (("ir", "a.fg"), "--print-after"),
    ):
        outcome = call(capsys, *command, option, "infer-rate")
        assert outcome.status == 2
        assert f"{option} infer-rate: there is no such pass" in outcome.err
        assert f"one of {', '.join(PASSES)}" in outcome.err
        assert outcome.out == ""


def test_stop_after_has_no_plan_to_name(folder: Path, capsys: Capture) -> None:
    outcome = call(capsys, "compile", "counting.py", "--stop-after=wire", "-o", "p.fgplan")
    assert outcome.status == 2
    assert "--stop-after writes no plan" in outcome.err


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("graph", [marl(), vlm(), filtered()], ids=["marl", "vlm", "filtered"])
def test_a_text_taken_up_after_any_pass_becomes_the_same_plan(
    graph: Graph, name: str, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("graph.fg").write_text(print_text(graph))
    Path("cluster.fg").write_text(print_text(gpus(2)))
    options = ("--cluster", "cluster.fg")
    middle = call(capsys, "ir", "graph.fg", "--pass", name, *options).out
    monkeypatch.setattr("sys.stdin", io.StringIO(middle))
    taken = parse_plan(call(capsys, "ir", "-", "--pass", "wire", *options).out)
    direct = parse_plan(call(capsys, "ir", "graph.fg", "--pass", "wire", *options).out)
    assert said(taken) == said(direct)
    assert replace(taken, decisions=()) == replace(direct, decisions=())


def said(plan: Plan) -> list[str]:
    return [str(decision) for decision in plan.decisions if decision.by not in REWRITES]


def test_pins_stay_in_the_text(folder: Path, capsys: Capture) -> None:
    pin = ("--pin", "lm.ranks=2", "--stop-after=lower-edges")
    text = call(capsys, "compile", "counting.py", *pin).out
    assert parse_graph(text).pins == {"lm.ranks": 2}


@pytest.mark.parametrize("value", [vlm(), laptop(), compile_graph(vlm(), laptop())])
def test_without_a_pass_a_text_is_verified_and_printed(
    value: Graph | Cluster | Plan, folder: Path, capsys: Capture
) -> None:
    text = print_text(value)
    Path("a.fg").write_text(f"# a comment\n{text}-----\nnot read\n")
    assert call(capsys, "ir", "a.fg").out == text


def test_what_the_verifier_refuses_is_shown_in_the_text(folder: Path, capsys: Capture) -> None:
    Path("a.fg").write_text(print_text(vlm()).replace("tokens: 256", "tokens: 0"))
    outcome = call(capsys, "ir", "a.fg")
    assert outcome.status == 2
    lines = outcome.err.splitlines()
    assert lines[:2] == ["error: example.py:6:", "  stage 'pack': expects tokens >= 1, got 0"]
    under = next(i for i, line in enumerate(lines) if "^" in line)
    assert lines[under - 1][lines[under].index("^") :].startswith("tokens: 0")


def test_an_illegal_plan_is_shown_in_its_own_text(folder: Path, capsys: Capture) -> None:
    plan = print_text(compile_graph(vlm(), laptop()))
    Path("a.fg").write_text(plan.replace('transport="shared-memory"', 'transport="shm"', 1))
    outcome = call(capsys, "ir", "a.fg")
    assert "channel 'samples': expects a transport, got 'shm'" in outcome.err
    assert '|   channel "samples"' in outcome.err


def test_a_mistake_in_the_text_is_told_with_file_line_and_column(
    folder: Path, capsys: Capture
) -> None:
    Path("a.fg").write_text('graph "a" {\n  stage "b" op=3\n}')
    outcome = call(capsys, "ir", "a.fg")
    assert outcome.status == 2
    assert outcome.err.startswith("error: a.fg:2:\n  column 16: expects str, got 3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.fg",), "gone.fg: No such file or directory"),
        (("cluster.fg", "--pass", "wire"), "passes run on a graph or a plan, not on a cluster"),
        (("graph.fg", "--cluster", "cluster.fg"), "--cluster, --pin and --costs are for passes"),
        (("graph.fg", "--pass", "wire", "--cluster", "graph.fg"), "graph.fg is the text of a gr"),
        (("plan.fgplan",), "plan.fgplan is no text"),
    ],
)
def test_what_is_no_text_or_has_no_meaning_is_refused_by_name(
    arguments: tuple[str, ...], message: str, folder: Path, capsys: Capture
) -> None:
    Path("graph.fg").write_text(print_text(vlm()))
    Path("cluster.fg").write_text(print_text(laptop()))
    Path("plan.fgplan").write_bytes(b"\x93fgplan\n\xff")
    outcome = call(capsys, "ir", *arguments)
    assert outcome.status == 2
    assert message in outcome.err


def test_print_after_shows_the_passes_on_the_way(folder: Path, capsys: Capture) -> None:
    Path("graph.fg").write_text(print_text(vlm()))
    outcome = call(capsys, "ir", "graph.fg", "--print-after", "simplify")
    assert list(texts(outcome.out)) == ["simplify"]
    outcome = call(capsys, "ir", "graph.fg", "--print-after=simplify", "--pass=plan-packing")
    assert list(texts(outcome.out)) == ["simplify", "plan-packing"]


def test_a_plan_is_compiled_again_from_its_graph_for_its_cluster(
    folder: Path, capsys: Capture
) -> None:
    plan = compile_graph(vlm(), gpus(2), {"lm.ranks": 4})
    Path("a.fg").write_text(print_text(plan))
    again = parse_plan(call(capsys, "ir", "a.fg", "--pass", "wire").out)
    assert said(again) == said(plan)
    assert replace(again, decisions=()) == replace(plan, decisions=())
