"""From played trajectories to agents' tables and figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph.ir.types import RecordType
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.column import bounds_of
from flowgraph.runtime.engine.interface import Completion
from flowgraph.runtime.stages.rewards import Rewards
from flowgraph.runtime.stages.trajectory import Turn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """One finished trajectory.

    turns: its answered calls in the order made. rewards: by agent, one number for each of its
    calls. figures: one number a name for the report.
    """

    sample: int
    trajectory: int
    turns: Sequence[tuple[Turn, Completion]]
    rewards: Mapping[str, Sequence[float]]
    figures: Mapping[str, float]


def played(
    sample: int,
    trajectory: int,
    turns: Sequence[tuple[Turn, Completion]],
    given: Rewards,
    agents: Sequence[str],
) -> Played:
    """Checks what the user's function returned. Raises ValueError naming the agent."""
    for name in given.rewards:
        if name not in agents:
            raise ValueError(f"rewards for '{name}', which is not among {', '.join(agents)}")
    rewards: dict[str, Sequence[float]] = {}
    figures = {name: float(value) for name, value in given.metrics.items()}
    for agent in agents:
        calls = sum(turn.agent == agent for turn, _ in turns)
        value = given.rewards.get(agent)
        if value is None and calls:
            raise ValueError(f"no reward for '{agent}', which was called {calls} times")
        if value is None:
            continue
        rewards[agent], figure = _by_call(agent, value, calls)
        if figure is not None:
            figures[f"reward/{agent}"] = figure
    return Played(
        sample=sample, trajectory=trajectory, turns=turns, rewards=rewards, figures=figures
    )


def _by_call(agent: str, value: Any, calls: int) -> tuple[list[float], float | None]:
    """The reward of each call, and the trajectory's own: their mean, or None without any."""
    if isinstance(value, int | float) or np.ndim(value) == 0:
        figure: float | None = float(value)
        each = [float(value)] * calls
    else:
        each = list(map(float, value))
        figure = math.fsum(each) / len(each) if each else None
    if len(each) != calls:
        raise ValueError(f"{len(each)} rewards for '{agent}', which was called {calls} times")
    if not all(map(math.isfinite, each)) or not math.isfinite(figure or 0.0):
        raise ValueError(f"the reward of '{agent}' is not finite: {value}")
    return each, figure


def table(agent: str, type: RecordType, episodes: Sequence[Played]) -> Batch:
    """The agent's rows, ordered as the episodes are and by call within each.

    Prompt tokens have loss_mask 0, logprobs 0 and versions -1.
    """
    rows = [
        (episode, call, turn, answer)
        for episode in episodes
        for call, (turn, answer) in enumerate(_of(agent, episode))
    ]
    if not rows:
        return Batch.empty(type)
    prompts = np.array([turn.prompt.size for _, _, turn, _ in rows], np.int64)
    sampled = np.array([answer.tokens.size for *_, answer in rows], np.int64)
    lengths = np.stack([prompts, sampled], axis=1).reshape(-1)
    mask = np.repeat(np.tile(np.array([0, 1], np.float32), len(rows)), lengths)
    is_sampled = mask == 1
    logprobs = np.zeros(mask.size, np.float32)
    logprobs[is_sampled] = np.concatenate([answer.logprobs for *_, answer in rows])
    versions = np.full(mask.size, -1, np.int32)
    versions[is_sampled] = np.concatenate([answer.versions for *_, answer in rows])
    tokens = np.concatenate([part for _, _, t, a in rows for part in (t.prompt, a.tokens)])
    bounds = (bounds_of(prompts + sampled),)
    columns = {
        "sample": _ints([episode.sample for episode, *_ in rows]),
        "trajectory": _ints([episode.trajectory for episode, *_ in rows]),
        "call": _ints([call for _, call, *_ in rows]),
        "tokens": Column("int64", tokens.astype(np.int64, copy=False), bounds),
        "loss_mask": Column("float32", mask, bounds),
        "logprobs": Column("float32", logprobs, bounds),
        "versions": Column("int32", versions, bounds),
        "reward": Column(
            "float32",
            np.array([episode.rewards[agent][call] for episode, call, *_ in rows], np.float32),
        ),
    }
    return Batch(len(rows), {name: columns[name] for name in type.names})


def figures(episodes: Sequence[Played]) -> dict[str, tuple[float, float]]:
    """(sum, count) of every figure, added in the order of the episodes."""
    sums: dict[str, tuple[float, float]] = {}
    for episode in episodes:
        for name, value in episode.figures.items():
            total, count = sums.get(name, (0.0, 0.0))
            sums[name] = (total + value, count + 1)
    return sums


def _of(agent: str, episode: Played) -> list[tuple[Turn, Completion]]:
    return [(turn, answer) for turn, answer in episode.turns if turn.agent == agent]


def _ints(values: Sequence[int]) -> Column:
    return Column("int64", np.array(values, np.int64))
