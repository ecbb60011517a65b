"""Two agents of unequal size; the larger's answers have a long tail: one in ten is 8 x as long."""

from dataclasses import dataclass

import flowgraph as fg
from flowgraph.models import decoder

SHORT, LONG, ONE_IN = 5, 40, 10


@dataclass(frozen=True, slots=True)
class Topic:
    number: int
    tokens: int


def build(batch: int = 8, tries: int = 8, steps: int = 20) -> fg.Graph:
    g = fg.Graph("skewed", steps=steps)
    writer = g.agent(
        "writer",
        fg.model(decoder, vocab=32, layers=3, width=96, heads=4, max_length=64),
        expect=fg.Calls(mean=1, prompt=6, response=fg.spread(8.5, p95=40)),
        max_tokens=LONG,
    )
    critic = g.agent(
        "critic",
        fg.model(decoder, vocab=32, layers=1, width=32, heads=2, max_length=64),
        expect=fg.Calls(mean=1, prompt=8, response=1),
        max_tokens=1,
        after=writer,
    )
    games = g.source("topics", topics).episodes(
        review, agents=[writer, critic], trajectories=tries, in_flight=batch
    )
    for agent in (writer, critic):
        games.rows(agent).group(by="task").train(
            agent.module, loss=fg.grpo(), batch=batch, optimizer=fg.adam(1e-4)
        )
    return g


def topics() -> list[Topic]:
    return [Topic(i, LONG if i % ONE_IN == 0 else SHORT) for i in range(1000)]


async def review(topic: Topic, writer: fg.Agent, critic: fg.Agent) -> fg.Rewards:
    prompt = [1 + (topic.number + k) % 30 for k in range(6)]
    text = await writer.generate(prompt, max_tokens=topic.tokens)
    verdict = await critic.generate([1, *text.tokens[:7]])
    good = float(verdict.tokens[0] % 2)
    return fg.Rewards({"writer": good, "critic": 1.0 - good})
