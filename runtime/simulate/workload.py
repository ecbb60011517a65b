"""What a plan's data will be: calls, lengths, sizes and filters' verdicts, drawn by identity.

Law: a draw is a function of the seed and of what it is for (sample, trajectory, agent, call); who
asks, when, and how often changes nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from flowgraph.ir.graph import Agent, Stage
from flowgraph.ir.index import agent_of
from flowgraph.ir.plan import Plan, Task
from flowgraph.runtime.policy.roofline import SAMPLE_TOKENS
from flowgraph.runtime.policy.step_time import PROMPT_TOKENS, RESPONSE_TOKENS
from flowgraph.runtime.randomness import key
from flowgraph.runtime.topology import Topology

Quantiles = Sequence[float]
"""Values at equal steps of probability, from the least to the largest."""

_MOST_PLAYED = 1 << 17
"""Trajectories remembered, to draw each once while its step lasts."""

_NORMAL = NormalDist()
_P95 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Turn:
    """One generate call: its agent, and its tokens."""

    agent: str
    prompt: int
    response: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What was seen of a run, in place of what the graph expects. Tokens, or calls, as quantiles.

    prompts, responses, calls: by agent. tokens: of a sample's row, by stream. rates: records a
    source sample, by stream.
    """

    prompts: Mapping[str, Quantiles] = field(default_factory=dict)
    responses: Mapping[str, Quantiles] = field(default_factory=dict)
    calls: Mapping[str, Quantiles] = field(default_factory=dict)
    tokens: Mapping[str, Quantiles] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


class Workload:
    """A plan's data in numbers, without the data."""

    def __init__(self, plan: Plan, seed: int, lengths: Lengths | None = None) -> None:
        self._plan = plan
        self._seed = seed
        self._seen = lengths or Lengths()
        self._topology = Topology(plan)
        self._levels = {s.name: _levels(plan, s) for s in plan.graph.by_op("episodes")}
        self._games = {s.name: _games(plan, s.name) for s in plan.graph.streams}
        self._rates = {name: float(Fraction(rate)) for name, rate in plan.prediction.rates.items()}
        self._played: dict[tuple[str, int, int, int], list[list[Turn]]] = {}
        self._filters = [
            stage
            for task in plan.tasks
            if not task.gated
            for stage in self._topology.stages(task)
            if stage.op == "filter"
        ]

    def episodes(self, task: Task) -> Stage | None:
        """The interaction inside a host task."""
        return next((s for s in self._topology.stages(task) if s.op == "episodes"), None)

    def trajectories(self, stage: Stage, variant: int) -> int:
        """An evaluation plays each of its samples once."""
        return 1 if variant else int(stage.attributes["trajectories"])

    def play(self, stage: str, variant: int, sample: int, trajectory: int) -> list[list[Turn]]:
        """A trajectory's calls: rounds one after another, the calls of a round side by side."""
        identity = (stage, variant, sample, trajectory)
        found = self._played.get(identity)
        if found is None:
            if len(self._played) >= _MOST_PLAYED:
                self._played.clear()  # a draw repeats itself
            found = self._played[identity] = self._rounds(*identity)
        return found

    def keeps(self, sample: int) -> bool:
        """Whether the filters before membership keep the sample."""
        return all(
            self._uniform("keep", stage.name, sample) < float(stage.attributes.get("expect", 1.0))
            for stage in self._filters
        )

    def records(self, stream: str, variant: int, sample: int) -> int:
        """Records of a sample in the stream."""
        game = self._games.get(stream)
        if game is not None:
            return len(self._turns(game, variant, sample))
        rate = self._rates.get(stream, 1.0)
        return _round(rate, self._uniform("records", stream, variant, sample))

    def weight(self, stream: str, variant: int, samples: Sequence[int]) -> int:
        """What a unit weighs in a micro-batch: its tokens, or its records where there are none."""
        return sum(self._weight(stream, variant, sample) for sample in samples)

    def _weight(self, stream: str, variant: int, sample: int) -> int:
        if self._plan.graph.stream(stream).type.field("tokens") is None:
            return self.records(stream, variant, sample)
        game = self._games.get(stream)
        if game is not None:
            turns = self._turns(game, variant, sample)
            return sum(turn.prompt + turn.response for turn in turns)
        seen = self._seen.tokens.get(stream)
        if seen is not None:
            return _quantile(seen, self._uniform("tokens", stream, variant, sample))
        expect = _source(self._plan, stream).attributes.get("expect", {})
        # One draw for all streams of a sample: its tokens are the same in each.
        u = self._uniform("tokens", variant, sample)
        tokens = _round(_spread(expect.get("tokens", SAMPLE_TOKENS), u), u)
        return max(1, tokens) * self.records(stream, variant, sample)

    def _turns(self, game: tuple[str, str], variant: int, sample: int) -> list[Turn]:
        stage, agent = game
        tries = self.trajectories(self._plan.graph.stage(stage), variant)
        return [
            turn
            for trajectory in range(tries)
            for calls in self.play(stage, variant, sample, trajectory)
            for turn in calls
            if turn.agent == agent
        ]

    def _rounds(self, stage: str, variant: int, sample: int, trajectory: int) -> list[list[Turn]]:
        identity = (stage, variant, sample, trajectory)
        calls = {
            name: self._draw(self._seen.calls, name, "calls", 1.0, *identity)
            for level in self._levels[stage]
            for name in level
        }
        rounds = []
        for turn in range(max(calls.values(), default=0)):
            for level in self._levels[stage]:
                names = [name for name in level if calls[name] > turn]
                if names:
                    rounds.append([self._turn(name, (*identity, turn)) for name in names])
        return rounds

    def _turn(self, agent: str, identity: tuple[str | int, ...]) -> Turn:
        prompt = self._draw(self._seen.prompts, agent, "prompt", PROMPT_TOKENS, *identity)
        response = self._draw(self._seen.responses, agent, "response", RESPONSE_TOKENS, *identity)
        sampling = self._plan.graph.agent(agent).sampling
        most = int(sampling.get("max_length") or 1 << 30)
        prompt = max(1, min(prompt, most - 1))
        longest = min(int(sampling.get("max_tokens") or 1 << 30), most - prompt)
        return Turn(agent, prompt, max(1, min(response, longest)))

    def _draw(
        self,
        seen: Mapping[str, Quantiles],
        agent: str,
        what: str,
        default: float,
        *identity: str | int,
    ) -> int:
        u = self._uniform(what, agent, *identity)
        if agent in seen:
            return _quantile(seen[agent], u)
        return _round(_spread(_expectation(self._plan.graph.agent(agent), what, default), u), u)

    def _uniform(self, *identity: str | int) -> float:
        return int.from_bytes(key(self._seed, *identity)[:7], "little") / (1 << 56)


def _expectation(agent: Agent, what: str, default: float) -> Any:
    expect = agent.expect
    name = "mean" if what == "calls" and "calls" not in expect else what
    return expect.get(name, default)


def _spread(value: Any, u: float) -> float:
    """A declared number is taken as it is; `{mean, p95}` as a log-normal with both of these."""
    if not isinstance(value, Mapping):
        return float(value)
    mean = float(value["mean"])
    ratio = math.log(max(1.0, float(value.get("p95", mean)) / mean))
    # p95 / mean = exp(1.645 s - s^2 / 2), which has no solution above exp(1.645^2 / 2) = 3.87.
    s = _P95 - math.sqrt(max(0.0, _P95**2 - 2.0 * ratio))
    return mean * math.exp(s * _NORMAL.inv_cdf(min(max(u, 1e-9), 1 - 1e-9)) - s * s / 2.0)


def _round(value: float, u: float) -> int:
    """To a neighbouring whole number, such that the mean stays; the draw's low bits decide."""
    whole = math.floor(value)
    return whole + (((u * 1021.0) % 1.0) < value - whole)


def _quantile(values: Quantiles, u: float) -> int:
    return round(values[min(int(u * len(values)), len(values) - 1)])


def _levels(plan: Plan, stage: Stage) -> list[list[str]]:
    """The stage's agents by who comes after whom; those of one level call side by side."""
    level: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in level:
            before = [of(b) for b in plan.graph.agent(name).after if b in stage.agents]
            level[name] = 1 + max(before, default=-1)
        return level[name]

    found: list[list[str]] = [[] for _ in range(1 + max(map(of, stage.agents), default=-1))]
    for name in stage.agents:
        found[level[name]].append(name)
    return found


def _source(plan: Plan, stream: str) -> Stage:
    """The source that a stream comes from, by the first input of each stage."""
    stage = plan.graph.stage(plan.graph.stream(stream).producer)
    while stage.inputs:
        stage = plan.graph.stage(plan.graph.stream(stage.inputs[0]).producer)
    return stage


def _games(plan: Plan, stream: str) -> tuple[str, str] | None:
    """(episodes stage, agent) whose calls are the stream's rows, through stages in between."""
    while True:
        stage = next(s for s in plan.graph.stages if s.name == plan.graph.stream(stream).producer)
        if stage.op == "episodes":
            agent = agent_of(stage, stream)
            return (stage.name, agent) if agent else None
        if stage.op not in ("group", "map", "pack") or not stage.inputs:
            return None
        stream = stage.inputs[0]
