"""Pass tests as text: a title, the passes, a graph; behind the line, what comes out or is said.

Rewrite the expected parts with `pytest --update-golden`.
"""

from pathlib import Path
from typing import Any

import pytest

from flowgraph.ir.diagnostics import render
from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.graph import Graph
from flowgraph.ir.text import parse_graph, print_text
from flowgraph.passes.pipeline import PIPELINE, run_passes
from tests.conftest import SEPARATOR, Golden
from tests.passes.graphs import gpus, laptop

FILES = sorted(Path(__file__).parent.glob("golden/*.fg"))
CLUSTERS = {"laptop": laptop(), "gpus": gpus(), "tiny": laptop(cores=1, slots=2)}


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_passes_make_of_a_text_what_its_file_says(file: Path, golden: Golden) -> None:
    text = file.read_text().partition(SEPARATOR)[0]
    options = dict(
        line[2:].split(": ", 1)
        for line in text.splitlines()
        if line.startswith("# ") and ": " in line
    )
    golden(file, outcome(text, options, file.name))


def outcome(text: str, options: dict[str, str], name: str) -> str:
    """Of the last pass: the lines of the graph that it changed, the tasks, its decisions."""
    wanted = options["passes"].split(", ")
    passes = tuple(step for step in PIPELINE if step.name in wanted)
    assert [step.name for step in passes] == wanted, "passes run in the pipeline's order"
    pins: dict[str, Any] = dict(
        pin.split("=") for pin in options.get("pins", "").split(", ") if pin
    )
    graph = parse_graph(text, name)
    seen: list[Graph] = [graph]
    try:
        state = run_passes(
            passes,
            graph,
            CLUSTERS[options.get("cluster", "laptop")],
            pins,
            watch=lambda _, state: seen.append(state.graph),
        )
    except FlowgraphError as error:
        return f"{type(error).__name__}: {render(error, graph)}"
    parts = [] if seen[-1] == seen[-2] else [changed(seen[-2], seen[-1])]
    parts += [str(task) for task in state.tasks]
    last = [str(d) for d in state.decisions if d.by == wanted[-1]]
    return "\n".join([*parts, *last])


def changed(before: Graph, after: Graph) -> str:
    """Lines of the printed graph that are new or gone."""
    old, new = print_text(before).splitlines(), print_text(after).splitlines()
    return "\n".join(
        [f"- {line.strip()}" for line in old if line not in new]
        + [f"+ {line.strip()}" for line in new if line not in old]
    )
