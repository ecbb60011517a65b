"""Plans by hand, and items for them: a language model alone, and one with an encoder."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.graph import Agent, FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.plan import Plan, Schedule, Task
from flowgraph.ir.types import Field, Ragged, RecordType
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.item import Item
from flowgraph.runtime.trainer.collective import Collective
from flowgraph.runtime.trainer.interface import TrainResult, UpdateOrder
from flowgraph.runtime.trainer.rank import Rank

VOCAB = 23
PLACEHOLDER = 22
WIDTH = 4
FEATURES = 6

ROW = RecordType(
    fields=(
        Field(name="sample", dtype="int64"),
        Field(name="tokens", dtype="int64", dims=(Ragged("tokens"),)),
        Field(name="loss_mask", dtype="float32", dims=(Ragged("tokens"),)),
        Field(name="logprobs", dtype="float32", dims=(Ragged("tokens"),)),
        Field(name="advantage", dtype="float32"),
        Field(name="reward", dtype="float32"),
    )
)
IMAGE = RecordType(
    fields=(
        Field(name="sample", dtype="int64"),
        Field(name="item", dtype="int64"),
        Field(name="patches", dtype="float32", dims=(Ragged("patches"), WIDTH)),
    ),
    key=("sample", "item"),
)
FEATURE = RecordType(
    fields=(
        Field(name="sample", dtype="int64"),
        Field(name="item", dtype="int64"),
        Field(name="features", dtype="float32", dims=(Ragged("patches"), FEATURES)),
    ),
    key=("sample", "item"),
)


def toy(qualname: str, **params: Any) -> FunctionRef:
    return FunctionRef(module="tests.runtime.trainer.toys", qualname=qualname, params=params)


def decoder(**params: Any) -> FunctionRef:
    """A decoder of 2 layers x 32 whose distributions are far from uniform."""
    defaults = {"vocab": VOCAB, "layers": 2, "width": 32, "heads": 4, "embedding_std": 0.4}
    return FunctionRef(
        module="flowgraph.models.factories", qualname="decoder", params={**defaults, **params}
    )


PATCHES = toy("encoder", width=WIDTH, out=FEATURES)
CROSS_ENTROPY = FunctionRef(module="flowgraph.algorithms.cross_entropy", qualname="loss")


def train_stage(
    loss: FunctionRef, modules: tuple[str, ...], *, stream: str = "rows", **attributes: Any
) -> Stage:
    defaults: dict[str, Any] = {
        "batch": 8,
        "micro_batch": 4096,
        "optimizer": {"name": "adamw", "lr": 1e-2},
        "clip": 0.0,
    }
    return Stage(
        name="learn",
        op="train",
        inputs=(stream,),
        function=loss,
        modules=modules,
        attributes={**defaults, **attributes},
    )


def text_plan(
    loss: FunctionRef = CROSS_ENTROPY,
    *,
    trainable: bool | tuple[str, ...] = True,
    factory: FunctionRef | None = None,
    metric: FunctionRef | None = None,
    pack: dict[str, Any] | None = None,
    modules: tuple[Module, ...] = (),
    trains: tuple[str, ...] = ("lm",),
    updates: int = 1,
    **attributes: Any,
) -> Plan:
    """rows → (pack →) learn, and an evaluation of it."""
    learn = train_stage(loss, trains, **attributes)
    stages = [Stage(name="tasks", op="source", outputs=("rows",))]
    streams = [Stream(name="rows", producer="tasks", type=ROW)]
    inner = ["learn"]
    if pack is not None:
        stages.append(
            Stage(name="pack", op="pack", inputs=("rows",), outputs=("packs",), attributes=pack)
        )
        streams.append(Stream(name="packs", producer="pack", type=ROW))
        learn = _reading(learn, "packs")
        inner.insert(0, "pack")
    evaluate = Stage(
        name="held-out", op="evaluate", function=metric, attributes={"of": "learn", "samples": 4}
    )
    graph = Graph(
        name="text",
        modules=(Module(name="lm", factory=factory or decoder(), trainable=trainable), *modules),
        stages=(*stages, learn, evaluate),
        streams=tuple(streams),
    )
    return plan_of(
        graph,
        Task(name="host", kind="host", stages=("tasks",), group="host", outputs=("rows",)),
        Task(name="train", kind="train", stages=tuple(inner), group="lm.gang", inputs=("rows",)),
        updates=updates,
    )


def played_plan(temperature: float) -> Plan:
    """tasks → play(solver) → learn: rows that an agent sampled."""
    learn = _reading(train_stage(CROSS_ENTROPY, ("lm",)), "play.solver")
    play = Stage(
        name="play",
        op="episodes",
        inputs=("rows",),
        outputs=("play.solver",),
        agents=("verifier", "solver"),
    )
    sampling = {"temperature": temperature}
    graph = Graph(
        name="played",
        modules=(Module(name="lm", factory=decoder()),),
        agents=(Agent(name="solver", module="lm", sampling=sampling),),
        stages=(Stage(name="tasks", op="source", outputs=("rows",)), play, learn),
        streams=(
            Stream(name="rows", producer="tasks", type=ROW),
            Stream(name="play.solver", producer="play", type=ROW),
        ),
    )
    host = Task(
        name="host", kind="host", stages=("tasks", "play"), group="host", outputs=("play.solver",)
    )
    train = Task(
        name="train", kind="train", stages=("learn",), group="lm.gang", inputs=("play.solver",)
    )
    return plan_of(graph, host, train)


def vision_plan(
    loss: FunctionRef = CROSS_ENTROPY,
    *,
    encoder: bool | tuple[str, ...] = True,
    lm: bool | tuple[str, ...] = True,
    placeholder: int = PLACEHOLDER,
    dtype: str = "float32",
    **attributes: Any,
) -> Plan:
    """images → encode → join(rows, features) → learn."""
    learn = _reading(train_stage(loss, ("lm", "vit"), **attributes), "joined")
    stages = (
        Stage(name="tasks", op="source", outputs=("rows",)),
        Stage(name="cut", op="unnest", inputs=("rows",), outputs=("images",)),
        Stage(
            name="encode",
            op="apply",
            inputs=("images",),
            outputs=("features",),
            modules=("vit",),
            attributes={"inputs": ("patches",), "output": "features"},
        ),
        Stage(
            name="join",
            op="join",
            inputs=("rows", "features"),
            outputs=("joined",),
            attributes={"placeholder": placeholder},
        ),
        learn,
    )
    graph = Graph(
        name="vision",
        modules=(
            Module(name="lm", factory=decoder(feature_width=FEATURES), trainable=lm, dtype=dtype),
            Module(name="vit", factory=PATCHES, trainable=encoder, dtype=dtype),
        ),
        stages=stages,
        streams=(
            Stream(name="rows", producer="tasks", type=ROW),
            Stream(name="images", producer="cut", type=IMAGE),
            Stream(name="features", producer="encode", type=FEATURE),
            Stream(name="joined", producer="join", type=ROW),
        ),
    )
    return plan_of(
        graph,
        Task(
            name="host", kind="host", stages=("tasks", "cut"), group="host",
            outputs=("rows", "images"),
        ),
        Task(
            name="encode", kind="apply", stages=("encode",), group="vit.gang",
            inputs=("images",), outputs=("features",),
        ),
        Task(
            name="train", kind="train", stages=("join", "learn"), group="lm.gang",
            inputs=("rows", "features"),
        ),
    )  # fmt: skip


def rank_of(
    plan: Plan, module: str = "lm", *, exact: bool = False, collective: Collective | None = None
) -> Rank:
    """A rank of the module's gang, for a run of 10 steps with seed 7."""
    return Rank(
        plan,
        module,
        rank=collective.rank if collective else 0,
        world=collective.world if collective else 1,
        steps=10,
        exact=exact,
        seed=7,
        collective=collective,
    )


def rows(seed: int, lengths: Sequence[int], *, first: int = 0, **columns: Any) -> Batch:
    """Random rows of these lengths, of samples `first`...; the first third of a row is prompt."""
    draw = np.random.default_rng(seed)
    records = []
    for place, length in enumerate(lengths):
        mask = np.ones(length, np.float32)
        mask[: length // 3] = 0.0
        records.append(
            {
                "sample": first + place,
                "tokens": draw.integers(0, PLACEHOLDER, length),
                "loss_mask": mask,
                "logprobs": draw.normal(-2, 0.3, length).astype(np.float32),
                "advantage": draw.normal(),
                "reward": draw.random(),
            }
            | {name: values[place] for name, values in columns.items()}
        )
    return Batch.from_rows(ROW, records)


def images(seed: int, sizes: Sequence[Sequence[int]], *, first: int = 0) -> Batch:
    """For each sample an image of so many patches each."""
    draw = np.random.default_rng(seed)
    records = [
        {
            "sample": first + place,
            "item": number,
            "patches": draw.normal(size=(patches, WIDTH)).astype(np.float32),
        }
        for place, of_sample in enumerate(sizes)
        for number, patches in enumerate(of_sample)
    ]
    return Batch.from_rows(IMAGE, records)


def with_placeholders(seed: int, sizes: Sequence[Sequence[int]], *, first: int = 0) -> Batch:
    """Rows whose placeholders are as many as the samples' patches, before some text."""
    draw = np.random.default_rng(seed)
    tokens = [
        np.concatenate(
            [draw.integers(0, PLACEHOLDER, 2), np.full(sum(of), PLACEHOLDER),
             draw.integers(0, PLACEHOLDER, 5)]
        )
        for of in sizes
    ]  # fmt: skip
    return rows(seed, [len(row) for row in tokens], first=first, tokens=tokens)


def item(
    task: str,
    streams: Mapping[str, Sequence[Batch]],
    *,
    units: Sequence[int] | None = None,
    number: int = 0,
    variant: int = 0,
    step: int = 0,
    part: int = 0,
) -> Item:
    parts = next(iter(streams.values()))
    return Item(
        id=number,
        task=task,
        variant=variant,
        step=step,
        part=part,
        units=tuple(units if units is not None else range(len(parts))),
        samples=tuple(tuple(np.unique(part["sample"].values).tolist()) for part in parts),
        inputs={name: tuple(batches) for name, batches in streams.items()},
    )


def gradient_of(rank: Rank, results: Sequence[TrainResult], **order: Any) -> torch.Tensor:
    """The gradient that an update with these results' divisor applies."""
    divisor = sum(weight for result in results for weight in result.weights.values())
    rank.update(UpdateOrder(step=0, part=0, divisor=divisor, **order))
    return rank.flat_gradient()


def difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Distance relative to the expected norm."""
    distance = torch.linalg.vector_norm(got.double() - expected.double())
    return float(distance / torch.linalg.vector_norm(expected.double()))


def _reading(stage: Stage, stream: str) -> Stage:
    return Stage(
        name=stage.name, op=stage.op, inputs=(stream,), function=stage.function,
        modules=stage.modules, attributes=stage.attributes,
    )  # fmt: skip


def plan_of(graph: Graph, *tasks: Task, updates: int = 1) -> Plan:
    node = Node(name="here", device="cpu", devices=1, cores=1, memory_bytes=1 << 30)
    cluster = Cluster(name="here", kinds=(DeviceKind(name="cpu", slots=8),), nodes=(node,))
    return Plan(
        graph=graph,
        cluster=cluster,
        tasks=tasks,
        schedule=Schedule(batch=8, chunk=2, updates=updates),
    )
