"""Places on real nodes: of several kinds and sizes, whole pieces, near to whom they talk to."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.passes.place import PROCESS_BYTES
from flowgraph.passes.seating import Bins, Seat
from tests.passes.graphs import gpus, laptop, marl, vlm

FAST = DeviceKind(
    name="fast", kind="cuda", flops=(("float32", 6e13),), memory_bytes=80 << 30, bandwidth=3e12
)
SLOW = DeviceKind(
    name="slow", kind="cuda", flops=(("float32", 2e13),), memory_bytes=40 << 30, bandwidth=1e12
)
CORE = DeviceKind(name="core", kind="cpu", slots=4)


def nodes(*sizes: tuple[str, int]) -> Cluster:
    """Nodes of these kinds and numbers of devices."""
    return Cluster(
        name="mixed",
        kinds=(FAST, SLOW, CORE),
        nodes=tuple(
            Node(name=f"n{i}", device=kind, devices=n, cores=16, memory_bytes=256 << 30)
            for i, (kind, n) in enumerate(sizes)
        ),
    )


def some(seed: int) -> Cluster:
    draw = random.Random(seed)
    return nodes(
        *((draw.choice(("fast", "slow", "core")), draw.randint(1, 6)) for _ in range(6)),
        ("fast", 4),
    )


def laws(plan: Plan) -> None:
    """What holds of every placement on accelerators."""
    kinds = {node.name: node.device for node in plan.cluster.nodes}
    sizes = {node.name: node.devices for node in plan.cluster.nodes}
    taken: Counter[tuple[str, int]] = Counter()
    for group in plan.groups:
        assert len(group.places) == group.replicas
        if group.kind == "stage":
            assert all(place.device == -1 for place in group.places)
            continue
        assert len({kinds[place.node] for place in group.places}) == 1, "one kind a group"
        assert kinds[group.places[0].node] != "core"
        assert all(0 <= place.device < sizes[place.node] for place in group.places)
        tp = group.layout.tp
        for i in range(0, group.replicas, tp):
            assert len({place.node for place in group.places[i : i + tp]}) == 1, "tp in a node"
        if not group.shares:
            taken.update((place.node, place.device) for place in group.places)
    assert max(taken.values(), default=0) <= 1, "a device takes one worker"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_nodes_pieces_are_whole_and_devices_taken_once(seed: int) -> None:
    for graph in (marl(batch=64), vlm(batch=256)):
        cluster = some(seed)
        plan = compile_graph(graph, cluster)
        laws(plan)
        assert [g.places for g in compile_graph(graph, cluster).groups] == [
            g.places for g in plan.groups
        ]


def test_a_piece_passes_over_nodes_that_are_too_small_for_it() -> None:
    plan = compile_graph(
        vlm(batch=256),
        nodes(("fast", 3), ("fast", 2), ("fast", 4)),
        {"lm.tp": 4, "lm.dp": 1, "lm.pp": 1},
    )
    laws(plan)
    assert {place.node for place in plan.group("lm.gang").places} == {"n2"}
    assert "n2" not in {place.node for place in plan.group("vit.gang").places}


def test_those_that_send_each_other_most_share_a_node() -> None:
    graph: Graph = vlm(batch=256)
    pins = {f"{name}.{way}": n for name in ("vit", "lm") for way, n in (("ranks", 2), ("tp", 1))}
    plan = compile_graph(graph, gpus(4, 4), pins)
    used = {p.node for name in ("vit.gang", "lm.gang") for p in plan.group(name).places}
    assert len(used) == 1
    streams = {channel.stream: channel.transport for channel in plan.channels}
    assert streams["features"] == "shared-memory"


def test_a_part_goes_to_the_node_of_whom_it_talks_to_though_another_is_as_full() -> None:
    pins = {"lm.tp": 4, "lm.ranks": 4, "vit.ranks": 1}
    plan = compile_graph(vlm(batch=256), nodes(("fast", 1), ("fast", 5)), pins)
    laws(plan)
    used = {p.node for name in ("vit.gang", "lm.gang") for p in plan.group(name).places}
    assert used == {"n1"}


def test_engines_are_by_the_trainer_whose_weights_they_load() -> None:
    pins = {f"{name}.{what}": 2 for name in ("solver", "verifier") for what in ("engines", "dp")}
    plan = compile_graph(marl(batch=64), gpus(2, 4), pins)
    for name in ("solver", "verifier"):
        nodes_of = [
            {place.node for place in plan.group(f"{name}.{part}").places}
            for part in ("engine", "gang")
        ]
        assert nodes_of[0] == nodes_of[1], name


def test_a_node_is_taken_where_it_is_fullest_so_that_whole_ones_stay() -> None:
    seats = [Seat(node=name, device=i) for name, n in (("a", 4), ("b", 2)) for i in range(n)]
    bins = Bins(seats)
    assert {place.node for place in bins.take(2, "", {}, ())} == {"b"}
    assert {place.node for place in bins.take(4, "", {}, ())} == {"a"}
    with pytest.raises(ValueError, match="no node of '' has 1 free devices"):
        bins.take(1, "", {}, ())


@pytest.mark.parametrize("short", [0, 1])
def test_the_orchestrator_counts_in_the_memory_of_its_node(short: int) -> None:
    cluster = laptop()
    workers = sum(group.replicas for group in compile_graph(vlm(), cluster).groups)
    memory = (workers + 1 - short) * PROCESS_BYTES
    tight = replace(cluster, nodes=(replace(cluster.nodes[0], memory_bytes=memory),))
    if not short:
        compile_graph(vlm(), tight)
        return
    with pytest.raises(PlanError, match="its processes need") as caught:
        compile_graph(vlm(), tight)
    assert "+ the orchestrator" in caught.value.what
