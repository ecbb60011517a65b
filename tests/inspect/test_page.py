"""The page: it needs nothing else, escapes what users name, and is legible in a real browser."""

import re
import stat
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flowgraph.inspect.facts import facts_of
from flowgraph.inspect.graphviz import MOST_STAGES, dot_text, graph_svg
from flowgraph.inspect.page import page
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from tests.inspect.browser import PROGRAM, Browser, browser
from tests.inspect.plans import PLANS, example
from tests.passes.graphs import laptop, marl

needs_browser = pytest.mark.skipif(not PROGRAM, reason="no chromium on this machine")

SHOWN = {
    "agents": lambda: example("marl_arithmetic", "laptop"),
    "images": lambda: example("vlm_digits", "node-8-gpu"),
}


@pytest.fixture(autouse=True)
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are our own, whatever is installed; a test that wants `dot` brings it."""
    monkeypatch.setattr("flowgraph.inspect.graphviz.shutil.which", lambda name: None)


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS)
def test_the_page_needs_nothing_outside_its_file(make: Callable[[], Plan]) -> None:
    html = page(facts_of(make()))
    assert not re.findall(r"https?://|src=|@import|url\((?!#)|<script", html)
    assert re.findall(r"<link[^>]*>", html) == ['<link rel="icon" href="data:,">']
    assert "prefers-color-scheme: dark" in html


def test_the_page_has_every_section_and_group() -> None:
    plan = compile_graph(marl(), laptop(), {"solver.engines": 2})
    html = page(facts_of(plan))
    ids = re.findall(r'<section id="(\w+)"', html)
    assert ids == [
        *("graph", "time", "parts", "devices", "channels", "staleness", "rooms"),
        *("neighbours", "pins", "decisions"),
    ]
    for group in plan.groups:
        assert f'<h3 class="id">{group.name}</h3>' in html
    assert 'aria-label="the graph"' in html


def test_what_users_name_cannot_become_markup() -> None:
    plan = compile_graph(marl(), laptop())
    bad = "<b onclick='x'>&\"graph\""
    html = page(facts_of(replace(plan, graph=replace(plan.graph, name=bad, pins={bad: bad}))))
    assert "<b onclick" not in html
    assert "&lt;b onclick=" in html


def test_a_graph_too_large_to_be_seen_is_told_in_words() -> None:
    plan = compile_graph(marl(), laptop())
    many = plan.graph.stages * (MOST_STAGES // len(plan.graph.stages) + 1)
    html = page(facts_of(replace(plan, graph=replace(plan.graph, stages=many))))
    assert f"{len(many)} stages are too many for a picture" in html
    assert "<svg" not in html


PRINTS_SVG = """#!/bin/sh
cat > {given}
cat <<'END'
<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg width="60pt" height="30pt"
 viewBox="0.00 0.00 60.00 30.00" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
<g id="graph0" class="graph"><text>drawn by dot</text></g>
</svg>
END
exit {status}
"""


def dot_that(tmp_path: Path, *, exits: int) -> Path:
    """A program that prints what `dot` prints, and keeps what it was given."""
    program = tmp_path / "dot"
    program.write_text(PRINTS_SVG.format(given=tmp_path / "given", status=exits))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_graphviz_draws_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = dot_that(tmp_path, exits=0)
    monkeypatch.setattr("flowgraph.inspect.graphviz.shutil.which", lambda name: str(program))
    graph = compile_graph(marl(), laptop()).graph
    svg = graph_svg(graph)
    assert xml.fromstring(svg).get("style") == "width:80px"
    assert "drawn by dot" in svg
    assert "http" not in svg
    assert (tmp_path / "given").read_text() == dot_text(graph)


def test_our_own_layout_draws_where_graphviz_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = dot_that(tmp_path, exits=1)
    monkeypatch.setattr("flowgraph.inspect.graphviz.shutil.which", lambda name: str(program))
    assert "drawn by dot" not in graph_svg(compile_graph(marl(), laptop()).graph)


def test_graphviz_is_told_every_stage_edge_and_hidden_edge() -> None:
    graph = compile_graph(marl(), laptop()).graph
    text = dot_text(graph)
    for stage in graph.stages:
        assert f'  "{stage.name}" [label="{stage.name}\\n' in text
    assert text.count('class="weights"') == 2
    assert text.count('class="data"') == sum(len(stage.inputs) for stage in graph.stages)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"

OVERFLOW = """
[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg'))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))
"""

CONTRAST = """
(() => {
  const light = c => c <= 10 ? c / 3294.6 : ((c / 255 + .055) / 1.055) ** 2.4;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c }
    return [255, 255, 255] };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.tagName === 'title' || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const ink = rgb(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.push([e.textContent.slice(0, 40), style.color]);
  }
  return found;
})()
"""
"""Texts whose contrast to what is behind them is below 4.5 (WCAG 2.1, level AA)."""


@needs_browser
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", SHOWN)
def test_a_browser_shows_it_whole_and_legibly(
    name: str, dark: bool, width: int, tab: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(facts_of(SHOWN[name]())))
    tab.open(file, width=width, dark=dark)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(OVERFLOW) == []
    assert tab.evaluate(CONTRAST) == []
    assert tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 14
    dark_page = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
    assert dark_page == dark
    assert tab.complaints == []


@needs_browser
def test_the_browser_would_notice_what_it_looks_for(tab: Browser, tmp_path: Path) -> None:
    """A page that is wrong in every way: too wide, too pale, noisy, and asking for more."""
    file = tmp_path / "page.html"
    file.write_text(
        "<body style='background:#fff'><p style='width:3000px;color:#ccc'>pale</p>"
        "<img src='http://127.0.0.1:9/x.png'><script>console.log('noise')</script>"
    )
    tab.open(file, width=400, dark=False)
    assert tab.evaluate(OVERFLOW) != []
    assert tab.evaluate(CONTRAST) != []
    assert any("noise" in complaint for complaint in tab.complaints)
    assert any("127.0.0.1" in complaint for complaint in tab.complaints)
