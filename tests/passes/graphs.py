"""Two graphs of the examples' shape, and clusters, built by hand."""

from dataclasses import replace
from typing import Any

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.graph import Agent, FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.location import Location
from flowgraph.ir.types import AGENT_ROW, ITEM, SAMPLE, Field, Ragged, RecordType

FILE = "example.py"
TASK = RecordType(
    fields=(
        SAMPLE,
        Field(name="prompt", dtype="int64", dims=(Ragged("prompt"),)),
        Field(name="answer", dtype="int64"),
    )
)
CREDITED = RecordType(
    fields=(*AGENT_ROW.fields, Field(name="advantage", dtype="float32")), key=AGENT_ROW.key
)
QUESTION = RecordType(
    fields=(
        SAMPLE,
        Field(name="tokens", dtype="int64", dims=(Ragged("tokens"),)),
        Field(name="loss_mask", dtype="float32", dims=(Ragged("tokens"),)),
        Field(name="patches", dtype="float32", dims=(Ragged("images"), Ragged("patches"), 16)),
        Field(name="rows", dtype="int32", dims=(Ragged("images"), Ragged("patches"))),
    )
)
IMAGE = RecordType(
    fields=(
        SAMPLE,
        ITEM,
        Field(name="patches", dtype="float32", dims=(Ragged("patches"), 16)),
        Field(name="rows", dtype="int32", dims=(Ragged("patches"),)),
    ),
    key=("sample", "item"),
)
FEATURES = RecordType(
    fields=(SAMPLE, ITEM, Field(name="features", dtype="float32", dims=(Ragged("merged"), 64))),
    key=("sample", "item"),
)
JOINED = RecordType(
    fields=(
        *QUESTION.fields,
        Field(name="features", dtype="float32", dims=(Ragged("images"), Ragged("merged"), 64)),
    )
)


def ref(name: str, **params: Any) -> FunctionRef:
    return FunctionRef(module="example", qualname=name, path="example.py", params=params)


def decoder(name: str, width: int, line: int = 1, **changes: Any) -> Module:
    return Module(
        name=name,
        factory=FunctionRef(module="flowgraph.models.factories", qualname="decoder"),
        description={
            "kind": "decoder",
            "parameters": 12 * 2 * width * width,
            "layers": 2,
            "width": width,
            "heads": 4,
            "kv_heads": 4,
            "head_width": width // 4,
            "vocab": 32,
            "max_length": 64,
        },
        at=Location(FILE, line),
        **changes,
    )


def marl(batch: int = 16, tries: int = 16, size: int = 0, **changes: Any) -> Graph:
    """A solver and a verifier, both trained on the same games."""
    agents = ("solver", "verifier")
    stages = [
        Stage(name="tasks", op="source", outputs=("tasks",), function=ref("arithmetic"), at=_at(4)),
        Stage(
            name="games",
            op="episodes",
            inputs=("tasks",),
            outputs=tuple(f"games.{agent}" for agent in agents),
            attributes={"trajectories": tries, "in_flight": 4},
            function=ref("play"),
            agents=agents,
            at=_at(5),
        ),
    ]
    streams = [Stream(name="tasks", producer="tasks", type=TASK, at=_at(4))]
    for i, agent in enumerate(agents):
        train, line = f"train-{agent}", 7 + i
        stages += _credited(agent, train, line, batch, size)
        streams += [
            Stream(name=f"games.{agent}", producer="games", type=AGENT_ROW, at=_at(5)),
            Stream(
                name=f"{agent}.groups", producer=f"{agent}.groups", type=AGENT_ROW, at=_at(line)
            ),
            Stream(name=f"{train}.credit", producer=f"{train}.credit", type=CREDITED, at=_at(line)),
        ]
    return Graph(
        name="marl",
        modules=(decoder("solver", 64, 1), decoder("verifier", 48, 2)),
        agents=(
            Agent(
                name="solver",
                module="solver",
                sampling={"max_tokens": 4, "max_length": 32, "temperature": 1.0},
                expect={"mean": 1.5, "prompt": 8, "response": 3},
                at=_at(1),
            ),
            Agent(
                name="verifier",
                module="verifier",
                sampling={"max_tokens": 1, "max_length": 32},
                expect={"mean": 1, "prompt": 12, "response": 1},
                after=("solver",),
                at=_at(2),
            ),
        ),
        stages=tuple(stages),
        streams=tuple(streams),
        root="/somewhere",
        **changes,
    )


def _credited(agent: str, train: str, line: int, batch: int, size: int) -> list[Stage]:
    return [
        Stage(
            name=f"{agent}.groups",
            op="group",
            inputs=(f"games.{agent}",),
            outputs=(f"{agent}.groups",),
            attributes={"by": ("sample",), "size": size},
            at=_at(line),
        ),
        Stage(
            name=f"{train}.credit",
            op="map",
            inputs=(f"{agent}.groups",),
            outputs=(f"{train}.credit",),
            attributes={"credit": True, "group": ("sample",)},
            function=FunctionRef(module="flowgraph.algorithms.grpo", qualname="advantages"),
            at=_at(line),
        ),
        Stage(
            name=train,
            op="train",
            inputs=(f"{train}.credit",),
            attributes={
                "batch": batch,
                "micro_batch": 4096,
                "optimizer": {"name": "adam", "lr": 2e-3},
                "needs": ("advantage", "behaviour_logprobs"),
            },
            function=FunctionRef(module="flowgraph.algorithms.grpo", qualname="loss"),
            modules=(agent,),
            devices=1,
            at=_at(line),
        ),
    ]


def vlm(batch: int = 64, **changes: Any) -> Graph:
    """A vision tower and a decoder, both trained on questions about images."""
    vit = Module(
        name="vit",
        factory=FunctionRef(module="flowgraph.models.factories", qualname="vit"),
        description={"kind": "vit", "parameters": 100_000, "layers": 2, "width": 64, "heads": 4},
        at=_at(1),
    )
    at = _at(9)
    return Graph(
        name="vlm",
        modules=(vit, decoder("lm", 96, 2)),
        stages=(
            Stage(
                name="samples", op="source", outputs=("samples",), function=ref("digits"), at=_at(4)
            ),
            Stage(
                name="images",
                op="unnest",
                inputs=("samples",),
                outputs=("images",),
                attributes={"dim": "images"},
                at=_at(5),
            ),
            Stage(
                name="encode",
                op="apply",
                inputs=("images",),
                outputs=("features",),
                attributes={"inputs": ("patches", "rows")},
                modules=("vit",),
                at=_at(5),
            ),
            Stage(
                name="join",
                op="join",
                inputs=("samples", "features"),
                outputs=("joined",),
                attributes={"placeholder": 3},
                at=_at(6),
            ),
            Stage(
                name="pack",
                op="pack",
                inputs=("joined",),
                outputs=("packs",),
                attributes={"tokens": 256},
                at=_at(6),
            ),
            Stage(
                name="train-lm",
                op="train",
                inputs=("packs",),
                attributes={"batch": batch, "optimizer": {"name": "adamw", "lr": 1e-3}},
                function=FunctionRef(module="flowgraph.algorithms.cross_entropy", qualname="loss"),
                modules=("lm", "vit"),
                devices=1,
                at=_at(7),
            ),
            Stage(
                name="held-out",
                op="evaluate",
                attributes={"of": "train-lm", "every": 200, "samples": 256},
                function=ref("exact_match"),
                at=at,
            ),
        ),
        streams=(
            Stream(name="samples", producer="samples", type=QUESTION, at=_at(4)),
            Stream(name="images", producer="images", type=IMAGE, at=_at(5)),
            Stream(name="features", producer="encode", type=FEATURES, at=_at(5)),
            Stream(name="joined", producer="join", type=JOINED, at=_at(6)),
            Stream(name="packs", producer="pack", type=JOINED, at=_at(6)),
        ),
        **changes,
    )


def filtered(batch: int = 64) -> Graph:
    """`vlm` with a map and a filter behind the source."""
    graph = vlm(batch)
    clean = Stage(
        name="clean", op="map", inputs=("samples",), outputs=("clean",), function=ref("f")
    )
    keep = Stage(
        name="keep",
        op="filter",
        inputs=("clean",),
        outputs=("kept",),
        attributes={"expect": 0.5},
        function=ref("good"),
    )
    rest = tuple(
        replace(s, inputs=tuple("kept" if name == "samples" else name for name in s.inputs))
        for s in graph.stages[1:]
    )
    streams = tuple(
        Stream(name=name, producer=stage.name, type=QUESTION)
        for name, stage in (("clean", clean), ("kept", keep))
    )
    return replace(
        graph,
        stages=(graph.stages[0], clean, keep, *rest),
        streams=(graph.streams[0], *streams, *graph.streams[1:]),
    )


def laptop(cores: int = 2, slots: int = 8) -> Cluster:
    """One machine without accelerators."""
    return Cluster(
        name="laptop",
        kinds=(DeviceKind(name="core", kind="cpu", slots=slots),),
        nodes=(
            Node(name="local", device="core", devices=cores, cores=cores, memory_bytes=8 << 30),
        ),
    )


def gpus(nodes: int = 1, devices: int = 8) -> Cluster:
    """Nodes with accelerators of 80 GiB."""
    kind = DeviceKind(
        name="gpu", kind="cuda", flops=(("float32", 6e13),), memory_bytes=80 << 30, bandwidth=3e12
    )
    return Cluster(
        name="gpus",
        kinds=(kind,),
        nodes=tuple(
            Node(name=f"n{i}", device="gpu", devices=devices, cores=64, memory_bytes=512 << 30)
            for i in range(nodes)
        ),
    )


def _at(line: int) -> Location:
    return Location(FILE, line)
