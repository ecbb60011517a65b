"""Cluster files, and what is detected without one."""

from dataclasses import replace
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.cli.cluster_file import load_cluster
from flowgraph.cli.local_machine import local_cluster
from flowgraph.cli.quantities import amount
from flowgraph.cli.target import cluster_for
from flowgraph.ir.errors import ConfigurationError
from flowgraph.passes import compile_graph
from tests.cli.commands import COUNTING
from tests.runs.running import ROOT

SHIPPED = sorted((ROOT / "examples" / "clusters").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_a_laptop_one_node_and_two_clusters_are_shipped() -> None:
    sizes = {file.stem: load_cluster(file) for file in SHIPPED}
    assert {name: (c.total_devices, len(c.nodes)) for name, c in sizes.items()} == {
        "cluster-48x16": (768, 48),
        "cluster-8x16": (128, 8),
        "laptop": (4, 1),
        "node-8-gpu": (8, 1),
    }


@pytest.mark.parametrize("file", SHIPPED, ids=[file.stem for file in SHIPPED])
@pytest.mark.parametrize("graph", EXAMPLES, ids=[graph.stem for graph in EXAMPLES])
def test_every_example_compiles_for_every_shipped_cluster(file: Path, graph: Path) -> None:
    plan = compile_graph(fg.load_graph(str(graph)), load_cluster(file))
    assert {place.node for group in plan.groups for place in group.places}


def test_a_count_beyond_all_clusters_and_a_name_given_twice_are_refused(tmp_path: Path) -> None:
    head = "name: many\nkinds:\n  gpu: {kind: cuda, memory: 80 GB}\nnodes:\n"
    rest = "device: gpu, devices: 8, cores: 8, memory: 1 GiB}\n"
    file = tmp_path / "many.yaml"
    file.write_text(f'{head}  - {{name: "n{{index}}", count: 1000000000, {rest}')
    with pytest.raises(ConfigurationError, match="count: expects 65,536 at most, got 1,000,000,"):
        load_cluster(file)
    file.write_text(f"{head}  - {{name: n1, {rest}  - {{name: n0, {rest}  - {{name: n1, {rest}")
    with pytest.raises(ConfigurationError, match="two nodes are named 'n1'"):
        load_cluster(file)


def test_a_count_stands_for_numbered_nodes_and_amounts_have_units(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        "kinds:\n"
        "  gpu: {kind: cuda, memory: 80 GiB, bandwidth: 3.35 TB/s, flops: {bfloat16: 1e15}}\n"
        "nodes:\n"
        '  - {name: "n{index}", address: "10.0.0.{index}", count: 2, device: gpu, devices: 8,'
        " cores: 96, memory: 1 TiB, intra: 450 GB/s}\n"
        "inter: 50 GB/s\n"
        "trusted: true\n"
    )
    cluster = load_cluster(file)
    assert [(node.name, node.address) for node in cluster.nodes] == [
        ("n0", "10.0.0.0"),
        ("n1", "10.0.0.1"),
    ]
    assert (cluster.name, cluster.inter, cluster.trusted) == ("two", 50e9, True)
    assert cluster.kind("gpu").memory_bytes == 80 << 30
    assert cluster.kind("gpu").bandwidth == 3.35e12
    assert cluster.kind("gpu").flops == (("bfloat16", 1e15),)
    assert cluster.nodes[0].memory_bytes == 1 << 40
    assert cluster.kind("gpu").slots == 1


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [("80 GiB", "B", 80 * 2**30), ("3.35TB/s", "B/s", 3.35e12), (7, "B", 7.0), ("1e12", "B", 1e12)],
)
def test_an_amount_is_read_in_its_unit(text: str | int, unit: str, value: float) -> None:
    assert amount(text, unit) == value


@pytest.mark.parametrize("text", ["80 GiB/s", "80 G", "-1", "eighty", "1 MiB MiB", True, -1, None])
def test_what_is_no_amount_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        amount(text, "B")


def test_this_machine_is_one_node_of_shared_cores() -> None:
    cluster = local_cluster()
    (node,) = cluster.nodes
    assert node.devices == node.cores >= 1
    assert node.memory_bytes > 1 << 28
    assert cluster.kind(node.device).slots == 16
    assert cluster == local_cluster()


def test_a_graphs_own_cluster_file_lies_beside_it_and_the_option_overrides_it(
    tmp_path: Path,
) -> None:
    graph = fg.load_graph(str(COUNTING))
    mine = tmp_path / "mine.yaml"
    mine.write_text((ROOT / "examples" / "clusters" / "laptop.yaml").read_text())
    named = replace(graph, root=str(tmp_path), cluster="mine.yaml")
    assert cluster_for(named, None).name == "laptop"
    other = ROOT / "examples" / "clusters" / "node-8-gpu.yaml"
    assert cluster_for(named, str(other)).name == "node-8-gpu"
    assert cluster_for(graph, None).name == "this-machine"
