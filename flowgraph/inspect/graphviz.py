"""The graph as an SVG: by Graphviz's `dot` where it is installed, else by a layout of our own."""

import re
import shutil
import subprocess
from collections.abc import Iterator

from flowgraph.ir.graph import Graph, Stage

MOST_STAGES = 200
"""Of a picture that anybody could read; larger graphs are told in words."""

DOT_SECONDS = 20.0
"""More than `dot` takes for that many; then our own layout is used."""


def graph_svg(graph: Graph) -> str:
    """One inline `<svg>` without anything from outside; "" for a graph too large to be seen."""
    if len(graph.stages) > MOST_STAGES:
        return ""
    program = shutil.which("dot")
    drawn = _by_dot(program, graph) if program else ""
    if drawn:
        return drawn
    from flowgraph.report.drawing import draw_graph

    return draw_graph(graph)


def _by_dot(program: str, graph: Graph) -> str:
    """ "" where the program fails: a picture is not worth an error."""
    try:
        done = subprocess.run(
            [program, "-Tsvg"],
            input=dot_text(graph),
            capture_output=True,
            text=True,
            timeout=DOT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"<svg\b.*</svg>", done.stdout, re.DOTALL)
    return _inline(found.group()) if done.returncode == 0 and found else ""


def _inline(svg: str) -> str:
    """Sized in pixels by its own text, coloured by the page's styles."""
    width = re.search(r'<svg\b[^>]*?\bwidth="([\d.]+)pt"', svg)
    size = f"width:{float(width.group(1)) * 4 / 3:.0f}px" if width else ""
    svg = re.sub(r'(<svg\b[^>]*?)\swidth="[^"]*"\s+height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg)
    head = f'<svg class="graph dot" style="{size}" role="img" aria-label="the graph"'
    return svg.replace("<svg", head, 1)


def dot_text(graph: Graph) -> str:
    """The graph in Graphviz's language; classes name what the page's styles colour."""
    lines = [
        "digraph {",
        '  rankdir=LR; bgcolor="transparent"; ranksep=0.5; nodesep=0.25;',
        '  node [shape=box, fontname="monospace", fontsize=9, height=0.45, margin="0.14,0.06"];',
        '  edge [fontname="monospace", fontsize=8, arrowsize=0.6];',
        *(f"  {line};" for line in _nodes(graph)),
        *(f"  {line};" for line in _edges(graph)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _nodes(graph: Graph) -> Iterator[str]:
    colours = {module.name: i % 8 for i, module in enumerate(graph.modules)}
    for stage in graph.stages:
        colour = f"s{colours[stage.modules[0]]}" if stage.modules else "own"
        looking = " looking" if stage.op == "evaluate" else ""
        label = f"{_quoted(stage.name)[1:-1]}\\n{_quoted(_subtitle(stage))[1:-1]}"
        yield f'{_quoted(stage.name)} [label="{label}", class="stage {colour}{looking}"]'


def _subtitle(stage: Stage) -> str:
    uses = ", ".join((*stage.modules, *stage.agents))
    return f"{stage.op} · {uses}" if uses else stage.op


def _edges(graph: Graph) -> Iterator[str]:
    producers = {stream.name: stream.producer for stream in graph.streams}
    for stage in graph.stages:
        for name in stage.inputs:
            yield _edge(producers[name], stage.name, "data", name)
        if stage.op == "evaluate":
            yield _edge(str(stage.attributes["of"]), stage.name, "look", "")
    agents = {agent.name: agent.module for agent in graph.agents}
    for stream in graph.streams:
        of = stream.name.rpartition(".")[0]
        if stream.kind == "gradient":
            yield _edge(stream.producer, producers[of], "gradient", stream.name, back=True)
        elif stream.kind == "weights":
            for stage in graph.by_op("episodes"):
                if any(agents[agent] == of for agent in stage.agents):
                    yield _edge(stream.producer, stage.name, "weights", stream.name, back=True)


def _edge(start: str, end: str, kind: str, tip: str, *, back: bool = False) -> str:
    """back: against the flow, so that it must not decide who stands left of whom."""
    more = f", label={_quoted(tip)}, constraint=false" if back else f", tooltip={_quoted(tip)}"
    return f'{_quoted(start)} -> {_quoted(end)} [class="{kind}"{more if tip else ""}]'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
