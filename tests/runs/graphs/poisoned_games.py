"""A small agent plays; some tasks are poison, in training or in the evaluation alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import flowgraph as fg
from flowgraph.models import decoder

SMALL = {"vocab": 64, "layers": 1, "width": 16, "heads": 2, "max_length": 24}


@dataclass(frozen=True, slots=True)
class Task:
    number: int


def build(bad: str = "", steps: int = 3, evaluated: str = "") -> fg.Graph:
    """bad: numbers on which an answer cannot be judged. evaluated: the same, in the evaluation."""
    g = fg.Graph("poisoned-games", steps=steps)
    player = g.agent("player", fg.model(decoder, **SMALL), max_tokens=3, stop=[2])
    tasks = g.source("tasks", numbers)
    games = tasks.episodes(play, agents=[player], trajectories=2, in_flight=3, bad=bad)
    games.rows(player).group(by="task").train(
        player.module,
        loss=fg.ppo(kl=0.0),
        batch=4,
        micro_batch=fg.tokens(64),
        optimizer=fg.adam(1e-2),
    )
    games.evaluate("held-out", samples=4, bad=evaluated)
    return g


def numbers() -> Sequence[Task]:
    return [Task(3 + i) for i in range(40)]


async def play(task: Task, player: fg.Agent, *, bad: str) -> fg.Rewards:
    said = await player.generate([1, task.number])
    return fg.Rewards({"player": judge(said.tokens[0], task.number, bad)})


def judge(said: int, number: int, bad: str) -> float:
    if str(number) in bad.split(","):
        raise ConnectionError(f"the judge does not answer about {number}")
    return float(said % 2 == number % 2)
