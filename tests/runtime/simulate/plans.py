"""Plans of small graphs, generated from numbers: teams of agents, and encoders with decoders."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

from flowgraph.ir.graph import Agent, Graph, Stage, Stream
from flowgraph.ir.plan import Plan
from flowgraph.ir.types import AGENT_ROW
from flowgraph.passes import compile_graph
from tests.passes.graphs import CREDITED, QUESTION, TASK, decoder, filtered, laptop, ref, vlm

PLANS = 96
"""How many different plans there are to draw from."""


@cache
def plan_of(number: int) -> Plan:
    """Plan `number`, always the same."""
    draw = random.Random(f"plan {number}")
    graph = team(draw) if draw.random() < 0.6 else pictures(draw)
    pins: dict[str, Any] = {"host.replicas": draw.randint(1, 3)}
    if draw.random() < 0.3:
        pins["schedule.ahead"] = draw.randint(1, 3)
    if draw.random() < 0.2:
        pins["schedule.mode"] = "barrier"
    for agent in graph.agents:
        pins[f"{agent.name}.engines"] = draw.randint(1, 2)
    for stage in graph.by_op("train"):
        pins[f"{stage.modules[0]}.ranks"] = draw.randint(1, 2)
    return compile_graph(graph, laptop(slots=16), pins)


def team(draw: random.Random) -> Graph:
    """One to three agents that play together, each with a module of its own, all trained."""
    names = ("ann", "bob", "cid")[: draw.randint(1, 3)]
    updates = draw.randint(1, 3)
    batch = updates * draw.randint(1, 3)
    agents = _agents(draw, names)
    tasks, streams = source(draw, TASK)
    games = Stage(
        name="games",
        op="episodes",
        inputs=(streams[-1].name,),
        outputs=tuple(f"games.{name}" for name in names),
        attributes={"trajectories": draw.randint(1, 3), "in_flight": draw.randint(1, 4)},
        function=ref("play"),
        agents=names,
    )
    stages = [*tasks, games]
    for name in names:
        micro = draw.choice([8, 64, 4096])
        stages += _trained(name, batch, updates, micro)
        streams += [
            Stream(name=f"games.{name}", producer="games", type=AGENT_ROW),
            Stream(name=f"{name}.credit", producer=f"{name}.credit", type=CREDITED),
        ]
    if draw.random() < 0.5:
        stages.append(
            Stage(
                name="held-out",
                op="evaluate",
                attributes={"of": "games", "every": draw.randint(0, 2), "samples": 3},
            )
        )
    return Graph(
        name="team",
        modules=tuple(decoder(name, 48) for name in names),
        agents=agents,
        stages=tuple(stages),
        streams=tuple(streams),
    )


def _agents(draw: random.Random, names: tuple[str, ...]) -> tuple[Agent, ...]:
    """Side by side, or each after the one before."""
    chained = draw.random() < 0.5
    return tuple(
        Agent(
            name=name,
            module=name,
            sampling={"max_tokens": 16, "max_length": 48},
            expect={
                "calls": draw.choice([1, 1.5, {"mean": 2, "p95": 4}]),
                "prompt": draw.choice([4, {"mean": 8, "p95": 20}]),
                "response": draw.choice([1, 3, {"mean": 5, "p95": 14}]),
            },
            after=names[i - 1 : i] if chained and i else (),
        )
        for i, name in enumerate(names)
    )


def source(draw: random.Random, type: Any) -> tuple[list[Stage], list[Stream]]:
    """A source, in some cases with an end, and in some with a filter behind it."""
    stages = [
        Stage(
            name="tasks",
            op="source",
            outputs=("tasks",),
            attributes={"at_end": draw.choice(["loop", "loop", "drop", "short"])},
            function=ref("tasks"),
        )
    ]
    streams = [Stream(name="tasks", producer="tasks", type=type)]
    if draw.random() < 0.4:
        stages.append(
            Stage(
                name="keep",
                op="filter",
                inputs=("tasks",),
                outputs=("kept",),
                attributes={"expect": draw.choice([0.3, 0.7])},
                function=ref("good"),
            )
        )
        streams.append(Stream(name="kept", producer="keep", type=type))
    return stages, streams


def _trained(name: str, batch: int, updates: int, micro: int) -> list[Stage]:
    return [
        Stage(
            name=f"{name}.credit",
            op="map",
            inputs=(f"games.{name}",),
            outputs=(f"{name}.credit",),
            attributes={"credit": True, "group": ("sample",)},
            function=ref("advantages"),
        ),
        Stage(
            name=f"train-{name}",
            op="train",
            inputs=(f"{name}.credit",),
            attributes={
                "batch": batch,
                "updates": updates,
                "micro_batch": micro,
                "optimizer": {"name": "adam", "lr": 2e-3},
                "needs": ("advantage",),
            },
            function=ref("loss"),
            modules=(name,),
        ),
    ]


def pictures(draw: random.Random) -> Graph:
    """An encoder and a decoder, with or without a filter, the encoder trained or frozen."""
    updates = draw.randint(1, 3)
    batch = updates * draw.randint(1, 4)
    graph = filtered(batch) if draw.random() < 0.4 else vlm(batch)
    frozen = draw.random() < 0.3
    changes: dict[str, dict[str, Any]] = {
        "train-lm": {"updates": updates, "micro_batch": draw.choice([16, 256])},
        "held-out": {"every": draw.randint(0, 2), "samples": 5},
        "samples": {"at_end": draw.choice(["loop", "loop", "drop", "short"])},
    }
    stages = tuple(
        replace(
            stage,
            attributes={**stage.attributes, **changes.get(stage.name, {})},
            modules=("lm",) if frozen and stage.op == "train" else stage.modules,
        )
        for stage in graph.stages
    )
    modules = tuple(
        replace(module, trainable=not (frozen and module.name == "vit")) for module in graph.modules
    )
    return replace(graph, stages=stages, modules=modules)


__all__ = ["PLANS", "QUESTION", "plan_of"]
