"""What `inspect` prints of a plan, whole."""

from pathlib import Path

import pytest

from flowgraph.passes import compile_graph
from flowgraph.passes.explain import explain
from tests.conftest import Golden
from tests.passes.graphs import filtered, gpus, laptop, marl

FOLDER = Path(__file__).parent / "golden"
PLANS = {
    "explain-agents-on-a-laptop.txt": lambda: compile_graph(
        marl(), laptop(), {"solver.engines": 2}
    ),
    "explain-images-on-two-nodes.txt": lambda: compile_graph(filtered(), gpus(2, 4)),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_explained_as_its_file_shows(name: str, golden: Golden) -> None:
    golden(FOLDER / name, explain(PLANS[name]()))
