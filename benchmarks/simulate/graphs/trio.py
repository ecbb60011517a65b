"""Three agents that answer side by side, several times in a trajectory."""

import asyncio
from dataclasses import dataclass

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Topic:
    number: int


def build(batch: int = 8, tries: int = 4, steps: int = 20, turns: int = 2) -> fg.Graph:
    g = fg.Graph("trio", steps=steps)
    agents = [
        g.agent(
            name,
            fg.model(decoder, vocab=32, layers=2, width=width, heads=4, max_length=48),
            expect=fg.Calls(mean=turns, prompt=8, response=6),
            max_tokens=6,
        )
        for name, width in (("left", 48), ("middle", 64), ("right", 48))
    ]
    games = g.source("topics", topics).episodes(
        talk, agents=agents, trajectories=tries, in_flight=batch, turns=turns
    )
    for agent in agents:
        games.rows(agent).group(by="task").train(
            agent.module, loss=fg.grpo(), batch=batch, optimizer=fg.adam(1e-4)
        )
    return g


def topics() -> list[Topic]:
    return [Topic(i) for i in range(1000)]


async def talk(
    topic: Topic, left: fg.Agent, middle: fg.Agent, right: fg.Agent, *, turns: int
) -> fg.Rewards:
    prompt = [1 + (topic.number + k) % 30 for k in range(8)]
    rewards = 0.0
    for _ in range(turns):
        said = await asyncio.gather(*(agent.generate(prompt) for agent in (left, middle, right)))
        prompt = [1 + token % 30 for one in said for token in one.tokens][:8] or prompt
        rewards += sum(one.tokens[0] % 2 for one in said)
    return fg.Rewards({name: rewards for name in ("left", "middle", "right")})
