"""Games over tasks that a filter chose: their records cross from one stage worker to another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Task:
    hint: Annotated[np.ndarray, fg.tensor("float32", 256)]


def build() -> fg.Graph:
    g = fg.Graph("chosen", steps=2)
    model = fg.model(decoder, vocab=16, layers=1, width=16, heads=2, max_length=24)
    player = g.agent("player", model, max_tokens=3, stop=[2])
    tasks = g.source("tasks", hints).filter(every, name="chosen")
    games = tasks.episodes(play, agents=[player], trajectories=2)
    games.rows(player).group(by="task").train(
        player.module,
        loss=fg.ppo(kl=0.0),
        batch=4,
        micro_batch=fg.tokens(64),
        optimizer=fg.adam(1e-2),
    )
    return g


def hints() -> Sequence[Task]:
    return [Task(np.full(256, i % 12, np.float32)) for i in range(100)]


def every(task: Task) -> bool:
    return True


async def play(task: Task, player: fg.Agent) -> fg.Rewards:
    said = await player.generate([1, 3 + int(task.hint[0])])
    return fg.Rewards({"player": float(said.tokens[0] == 3)})
