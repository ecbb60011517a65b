"""Two small agents play: one asks itself several things at once, the other answers it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import flowgraph as fg
from flowgraph.models import decoder

SMALL = {"vocab": 16, "layers": 1, "width": 16, "heads": 2, "max_length": 24}


@dataclass(frozen=True, slots=True)
class Task:
    number: int


def build(game: str = "alone", kl: float = 0.0, steps: int = 3, size: int = 0) -> fg.Graph:
    g = fg.Graph("games", steps=steps)
    player = g.agent("player", fg.model(decoder, **SMALL), max_tokens=3, stop=[2])
    agents = [player]
    if game == "together":
        agents.append(g.agent("helper", fg.model(decoder, **SMALL), max_tokens=2))
    tasks = g.source("tasks", numbers)
    games = tasks.episodes(
        together if game == "together" else alone, agents=agents, trajectories=4, in_flight=3
    )
    for agent in agents:
        reference = None
        if kl:
            model = fg.model(decoder, **SMALL)
            reference = g.module(f"{agent.name}-before", model, trainable=False)
        games.rows(agent).group(by="task", size=size).train(
            agent.module,
            loss=fg.ppo(kl=kl),
            reference=reference,
            batch=4,
            micro_batch=fg.tokens(64),
            optimizer=fg.adam(1e-2),
        )
    return g


def numbers() -> Sequence[Task]:
    return [Task(3 + i % 12) for i in range(100)]


async def alone(task: Task, player: fg.Agent) -> fg.Rewards:
    said = await player.generate([1, task.number])
    return fg.Rewards({"player": float(said.tokens[0] == task.number)})


async def together(task: Task, player: fg.Agent, helper: fg.Agent) -> fg.Rewards:
    """Two chains side by side, one prompt asked twice, and a last call that reads all answers."""

    async def chain(start: int) -> list[int]:
        first = await player.generate([1, start])
        hints = await asyncio.gather(
            helper.generate([1, *first.tokens]), player.generate([1, task.number]), shout(start)
        )
        return [hint.tokens[0] for hint in hints]

    async def shout(start: int) -> fg.Generation:
        return await helper.generate([start, start])

    chains = await asyncio.gather(chain(3), chain(4), chain(3))
    last = await player.generate([1, *(token for chain in chains for token in chain)])
    right = float(last.tokens[0] == task.number)
    return fg.Rewards({"player": right - 0.01 * len(last.tokens), "helper": right})
