"""What is found out about a plan's code and cluster without running any of it."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.cli.before_run import remarks
from flowgraph.cli.changed_code import changes
from flowgraph.cli.cluster_file import load_cluster
from flowgraph.ir.errors import ConfigurationError
from flowgraph.passes import compile_graph
from tests.cli.commands import COUNTING
from tests.runs.running import ROOT, TWO_CORES

DIGITS = ROOT / "examples" / "vlm_digits.py"
CLUSTERS = ROOT / "examples" / "clusters"


def test_unchanged_code_is_found_unchanged_without_importing_it(tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "digits_here.py")
    graph = fg.load_graph(str(tmp_path / "digits_here.py"))
    del sys.modules["digits_here"]
    assert changes(graph) == []
    assert "digits_here" not in sys.modules


def test_a_changed_file_is_named_once_however_many_functions_it_has(tmp_path: Path) -> None:
    file = tmp_path / "digits_here.py"
    shutil.copy(DIGITS, file)
    graph = fg.load_graph(str(file))
    file.write_text(file.read_text() + "\n")
    (change,) = changes(graph)
    assert (change.file, change.gone) == (str(file), False)


def test_a_changed_source_of_an_evaluation_is_seen(tmp_path: Path) -> None:
    graph = fg.load_graph(str(DIGITS))
    stages = tuple(
        replace(s, attributes={**s.attributes, "source": {**s.attributes["source"], "digest": "0"}})
        if s.op == "evaluate"
        else s
        for s in graph.stages
    )
    (change,) = changes(replace(graph, stages=stages))
    assert change.function == "vlm_digits:digit_questions"


def test_changed_installed_code_is_seen_too() -> None:
    graph = fg.load_graph(str(COUNTING))
    factory = replace(graph.modules[0].factory, digest="0" * 32)
    modules = (replace(graph.modules[0], factory=factory),)
    (change,) = changes(replace(graph, modules=modules))
    assert change.file.endswith("models/factories.py")
    missing = replace(factory, module="no_such_package.models")
    (change,) = changes(replace(graph, modules=(replace(graph.modules[0], factory=missing),)))
    assert change.gone


def test_changed_code_warns_and_is_refused_in_exact_mode(tmp_path: Path) -> None:
    file = tmp_path / "counting.py"
    shutil.copy(COUNTING, file)
    plan = compile_graph(fg.load_graph(str(file)), TWO_CORES)
    assert list(remarks(plan, exact=True)) == []
    file.write_text(file.read_text() + "\n")
    (warning,) = remarks(plan, exact=False)
    assert warning.startswith(f"warning: {file} (counting:lines) changed since")
    with pytest.raises(ConfigurationError, match="changed since the plan was compiled"):
        list(remarks(plan, exact=True))
    file.unlink()
    with pytest.raises(ConfigurationError, match="is not there any more"):
        list(remarks(plan, exact=False))


def test_a_plan_for_other_machines_says_where_it_runs() -> None:
    graph = fg.load_graph(str(COUNTING))
    plan = compile_graph(graph, load_cluster(CLUSTERS / "cluster-48x16.yaml"))
    (note,) = remarks(plan, exact=False)
    assert "(768 devices on 48 nodes); all its workers run on this machine's cores" in note


def test_what_may_go_to_disk_is_said_with_its_sum() -> None:
    plan = compile_graph(fg.load_graph(str(COUNTING)), TWO_CORES)
    writers = sum(group.replicas for group in plan.groups if group.kind != "engine")
    (note,) = remarks(plan, exact=False, spill=20 * 10**9)
    assert f"{writers} workers may keep 20 GB each on disk, {20 * writers} GB in all" in note
