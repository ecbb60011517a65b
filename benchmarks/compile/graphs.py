"""Graphs and plans of any size."""

from dataclasses import replace

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.graph import FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.types import SAMPLE, Field, Ragged, RecordType

ROW = RecordType(
    fields=(
        SAMPLE,
        Field(name="tokens", dtype="int64", dims=(Ragged("tokens"),)),
        Field(name="loss_mask", dtype="float32", dims=(Ragged("tokens"),)),
    )
)
CHAIN = 50
"""Stages in a row from a source to a trainer."""


def wide(stages: int) -> Graph:
    """Chains of source, maps, filter and train, each with a module of its own."""
    count = max(1, stages // CHAIN)
    made: list[Stage] = []
    streams: list[Stream] = []
    modules: list[Module] = []
    function = FunctionRef(module="example", qualname="f", path="example.py")
    for c in range(count):
        last = f"source-{c}"
        made.append(Stage(name=last, op="source", outputs=(last,), function=function))
        streams.append(Stream(name=last, producer=last, type=ROW))
        for i in range(CHAIN - 2):
            name, op = f"stage-{c}-{i}", "filter" if i == CHAIN // 2 else "map"
            made.append(Stage(name=name, op=op, inputs=(last,), outputs=(name,), function=function))
            streams.append(Stream(name=name, producer=name, type=ROW))
            last = name
        modules.append(decoder_module(f"lm-{c}"))
        made.append(
            Stage(
                name=f"train-{c}",
                op="train",
                inputs=(last,),
                attributes={"batch": 64, "optimizer": {"name": "adam", "lr": 1e-3}},
                function=function,
                modules=(f"lm-{c}",),
            )
        )
    return Graph(
        name=f"wide-{stages}", modules=tuple(modules), stages=tuple(made), streams=tuple(streams)
    )


def decoder_module(name: str) -> Module:
    """A small language model that describes itself."""
    return Module(
        name=name,
        factory=FunctionRef(module="flowgraph.models.factories", qualname="decoder"),
        description={
            "kind": "decoder",
            "parameters": 100_000,
            "layers": 2,
            "width": 64,
            "heads": 4,
            "kv_heads": 4,
            "head_width": 16,
            "vocab": 32,
        },
    )


def cores(count: int) -> Cluster:
    """One machine whose cores take 16 workers each."""
    return Cluster(
        name="cores",
        kinds=(DeviceKind(name="core", kind="cpu", slots=16),),
        nodes=(Node(name="n", device="core", devices=count, cores=count, memory_bytes=1 << 42),),
    )


def many_workers(workers: int) -> tuple[Graph, Cluster, dict[str, int]]:
    """A graph, a cluster and pins whose plan has about as many workers."""
    nodes = -(-workers // 128)
    cluster = Cluster(
        name="large",
        kinds=(DeviceKind(name="core", kind="cpu", slots=16),),
        nodes=tuple(
            Node(name=f"n{i}", device="core", devices=8, cores=8, memory_bytes=1 << 40)
            for i in range(nodes)
        ),
    )
    graph = wide(20 * CHAIN)
    return replace(graph, steps=1), cluster, {f"lm-{c}.ranks": workers // 20 for c in range(20)}
