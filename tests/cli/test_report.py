"""The report: curves, the drawing of the graph, and the page as a whole."""

import re
import xml.etree.ElementTree as xml
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowgraph as fg
from flowgraph.ir.graph import Graph
from flowgraph.passes import compile_graph
from flowgraph.report import write_report
from flowgraph.report.curves import Series, chart, round_ticks, smooth, thin
from flowgraph.report.drawing import draw_graph
from flowgraph.report.layers import arrange
from flowgraph.report.run_story import read_run
from flowgraph.report.run_timeline import run_timeline
from flowgraph.runtime.logbook import Logbook
from flowgraph.runtime.messages import Done, Run, encode
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.run_directory import RunDirectory
from tests.cli.commands import COUNTING
from tests.cli.events import whole_run
from tests.passes.graphs import marl, vlm
from tests.runs.running import TWO_CORES

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run directory with a hundred steps in it."""
    plan = compile_graph(fg.load_graph(str(COUNTING)), TWO_CORES)
    directory = RunDirectory.create(RunOptions(run_dir=str(tmp_path / "run")), plan)
    for event in whole_run():
        directory.progress(event)
    directory.outcome("finished")
    directory.close()
    (directory.path / "result.json").write_text(
        '{"wall_s": 75.0, "samples": {"a/b": {"admitted": 8, "consumed": 8, "dropped": 0, '
        '"in_flight": 0}}}'
    )
    return directory.path


def svgs(html: str) -> list[xml.Element]:
    """Every drawing of the page, parsed: a malformed one is an error."""
    return [
        xml.fromstring(found.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
        for found in re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    ]


def test_the_report_has_curves_a_drawing_shares_tables_and_the_plan(finished: Path) -> None:
    html = write_report(finished).read_text()
    titles = [e.get("aria-label") for e in svgs(html)]
    for title in ("reward", "loss", "team", "held-out", "seconds a step", "the graph"):
        assert title in titles
    for part in ("counting", "finished", "1 min 15 s", "solver.gang-0", "admitted", "decisions"):
        assert part in html


def test_the_report_needs_nothing_outside_its_file(finished: Path) -> None:
    html = write_report(finished).read_text()
    assert not re.findall(r"https?://|src=|@import|url\((?!#)|<script|<link", html)
    assert "prefers-color-scheme: dark" in html


def test_a_failed_run_has_a_report_with_its_error_and_its_curves_so_far(finished: Path) -> None:
    (finished / "result.json").unlink()
    (finished / "outcome.json").write_text('{"state": "failed", "error": "stage <b>: boom"}')
    html = write_report(finished).read_text()
    assert "stage &lt;b&gt;: boom" in html
    assert 'class="state failed"' in html
    assert "reward" in [e.get("aria-label") for e in svgs(html)]


def test_the_report_tells_what_went_wrong_and_what_was_done_about_it(tmp_path: Path) -> None:
    plan = compile_graph(fg.load_graph(str(COUNTING)), TWO_CORES)
    directory = RunDirectory.create(RunOptions(run_dir=str(tmp_path / "run")), plan)
    directory.journal.attempt(0, "")
    directory.journal.restart(1.0, "host-0", "worker host-0 was killed by signal 9")
    directory.journal.quarantine(36, "check", "ValueError: <b>", "a.py:3", "Traceback of it")
    directory.journal.drop(1.0, 3, 5, "filter 'odd'")
    directory.close()
    html = write_report(tmp_path / "run").read_text()
    for part in ("killed by signal 9", "ValueError: &lt;b&gt;", "Traceback of it", "filter &#x27;"):
        assert part in html, part
    told = read_run(tmp_path / "run").told()
    assert "restarted host-0: worker host-0 was killed by signal 9" in told
    assert "put aside sample 36: stage 'check': ValueError: <b>" in told
    assert "left out by filter 'odd': 1 samples" in told


def test_the_last_moments_of_a_run_are_drawn_from_its_journal(tmp_path: Path) -> None:
    plan = compile_graph(fg.load_graph(str(COUNTING)), TWO_CORES)
    directory = RunDirectory.create(RunOptions(run_dir=str(tmp_path / "run")), plan)
    directory.journal.attempt(0, "")
    log = Logbook(directory.journal)
    task = next(task for task in plan.tasks if task.kind == "host")
    run = Run(
        item=4,
        task=task.name,
        variant=0,
        step=3,
        part=0,
        version=3,
        units=(0,),
        samples=((0,),),
        inputs={},
        outputs=(),
    )
    done = Done(
        worker="host-0",
        item=4,
        outputs={},
        sizes={},
        weights=(),
        metrics={},
        kept=(),
        dropped=(),
        tokens=0,
        busy_s=0.25,
    )
    log.sent(1.0, "host-0", run, encode(run), 1)
    log.received(2.0, "host-0", done, encode(done))
    directory.close()
    (span,) = run_timeline(plan, tmp_path / "run").spans
    assert (span.worker, span.kind, span.step) == ("host-0", "host", 3)
    assert (span.start, span.end, span.work) == (1.75, 2.0, 0.25)
    html = write_report(tmp_path / "run").read_text()
    assert "timeline of all workers" in [e.get("aria-label") for e in svgs(html)]


def test_a_run_without_a_step_has_a_report(tmp_path: Path) -> None:
    plan = compile_graph(fg.load_graph(str(COUNTING)), TWO_CORES)
    RunDirectory.create(RunOptions(run_dir=str(tmp_path / "run")), plan).close()
    assert "counting" in write_report(tmp_path / "run").read_text()


def test_a_curve_stays_inside_its_chart_and_gaps_are_left_out() -> None:
    points = [(float(i), float(i % 7) - 3) for i in range(1, 1000)]
    points[500] = (501.0, float("nan"))
    (drawn,) = svgs(chart("loss", [Series(label="lm", points=points, colour=0)]))
    _, _, width, height = map(float, str(drawn.get("viewBox")).split())
    for path in drawn.findall(f"{SVG}path"):
        for x, y in re.findall(r"([\d.]+),([\d.]+)", str(path.get("d"))):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height
    assert "nan" not in xml.tostring(drawn).decode()


def test_a_chart_of_nothing_is_nothing() -> None:
    assert chart("loss", [Series(label="lm", points=[(1.0, float("nan"))], colour=0)]) == ""


def test_a_single_point_is_drawn() -> None:
    assert len(svgs(chart("loss", [Series(label="lm", points=[(1.0, 0.0)], colour=0)]))) == 1


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
)
def test_ticks_enclose_the_values_and_are_few(low: float, span: float) -> None:
    ticks = round_ticks(low, low + span)
    assert ticks == sorted(set(ticks))
    slack = 1e-6 * max(abs(low), span)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    assert 2 <= len(ticks) <= 8


def test_a_moving_mean_keeps_length_and_level() -> None:
    points = [(float(i), 2.0) for i in range(50)]
    assert smooth(points, 9) == points
    assert smooth([(0.0, 1.0), (1.0, 3.0)], 1) == [(0.0, 1.0), (1.0, 3.0)]


def test_thinning_keeps_the_mean() -> None:
    points = [(float(i), float(i * i)) for i in range(1000)]
    few = thin(points, 10)
    assert len(few) == 10
    assert sum(y for _, y in few) / 10 == pytest.approx(sum(y for _, y in points) / 1000)
    assert thin(points[:3], 10) == points[:3]


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """Nodes in topological order and edges that go forward."""
    count = draw(st.integers(1, 12))
    nodes = [f"n{i}" for i in range(count)]
    pairs = [(a, b) for j, b in enumerate(nodes) for a in nodes[:j]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return nodes, edges


@given(flows())
def test_every_edge_goes_right_one_column_at_a_time(
    flow: tuple[list[str], list[tuple[str, str]]],
) -> None:
    nodes, edges = flow
    layers = arrange(nodes, edges)
    column = {name: i for i, names in enumerate(layers.columns) for name in names}
    assert set(nodes) <= set(column)
    assert sum(map(len, layers.columns)) == len(column)
    for edge in edges:
        route = layers.routes[edge]
        assert (route[0], route[-1]) == edge
        assert [column[name] - column[route[0]] for name in route] == list(range(len(route)))


def test_parallel_branches_do_not_cross() -> None:
    edges = [("s", "a1"), ("s", "b1"), ("a1", "a2"), ("b1", "b2")]
    layers = arrange(["s", "b1", "a1", "a2", "b2"], edges)
    (_, first, second) = layers.columns
    assert [name[0] for name in first] == [name[0] for name in second]


@pytest.mark.parametrize("graph", [marl(), vlm()], ids=["agents", "digits"])
def test_stages_do_not_overlap_and_hidden_edges_are_drawn(graph: Graph) -> None:
    graph = compile_graph(graph, TWO_CORES).graph
    (drawn,) = svgs(draw_graph(graph))
    width, height = map(float, str(drawn.get("viewBox")).split()[2:])
    boxes = [box_of(group) for group in drawn.findall(f"{SVG}g")]
    assert len(boxes) == len(graph.stages)
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    kinds = [str(path.get("class")).removeprefix("edge ") for path in drawn.findall(f"{SVG}path")]
    for kind, count in HIDDEN[graph.name].items():
        assert kinds.count(kind) == count


HIDDEN = {"marl": {"weights": 2, "gradient": 0}, "vlm": {"weights": 0, "gradient": 1}}
"""Edges that go back, by graph: an update's weights reach the rollout, gradients the encoder."""


def box_of(group: xml.Element) -> tuple[float, float, float, float]:
    rect = group.find(f"{SVG}rect")
    assert rect is not None
    x, y, width, height = (float(str(rect.get(k))) for k in ("x", "y", "width", "height"))
    return x, y, x + width, y + height
