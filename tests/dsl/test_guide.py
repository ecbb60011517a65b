"""The language guide: its graphs load, and its message is the one that comes out."""

import re
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.ir.verify import verify_flow

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "dsl.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_graph_of_the_guide_is_legal(number: int, tmp_path: Path) -> None:
    file = tmp_path / "graph.py"
    file.write_text(BLOCKS[number])
    verify_flow(fg.load_graph(str(file)))


def test_the_shortest_graph_has_less_than_ten_lines() -> None:
    build = BLOCKS[0][BLOCKS[0].index("def build") :]
    assert len(build.splitlines()) < 10


def test_the_guides_message_is_real() -> None:
    golden = (Path(__file__).parent / "golden" / "unknown-field.txt").read_text()
    for line in golden.partition("-----\n")[2].splitlines():
        assert f"    {line}" in GUIDE
