"""Mistakes in graph files, each with the whole message that its author gets.

A golden file is a graph file, with its title on the first line and, optionally, settings on the
second; after `-----` comes the message. `prelude.py` lies beside it when it is loaded.
"""

import shutil
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.ir.errors import FlowgraphError
from tests.conftest import SEPARATOR, Golden

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_mistake_names_the_users_line_and_what_to_do(
    file: Path, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = file.read_text().partition(SEPARATOR)[0] + "\n"
    (tmp_path / "graph.py").write_text(source)
    shutil.copy(FOLDER / "prelude.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FlowgraphError) as caught:
        fg.load_graph("graph.py", settings_of(source))
    assert "graph.py" in str(caught.value)
    assert caught.value.exit_code == 2
    golden(file, str(caught.value))


def settings_of(source: str) -> dict[str, str]:
    """From a second line like `# --set batch=4 --set lr=1`."""
    second = source.splitlines()[1]
    if not second.startswith("# --set"):
        return {}
    return dict(pair.strip().split("=", 1) for pair in second.split("--set")[1:])
