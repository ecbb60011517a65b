"""A solver answers, a verifier may send it back once; both learn."""

from collections.abc import Sequence
from dataclasses import dataclass

import flowgraph as fg


@dataclass(frozen=True)
class Task:
    question: str
    answer: int
    prompt: list[int]


def arithmetic(*, operands: int, seed: int = 0) -> Sequence[Task]:
    return [Task(f"{i}+{seed}", i + seed, [1] * operands) for i in range(64)]


async def play(
    task: Task, solver: fg.Agent, verifier: fg.Agent, *, verdict: str = "", penalty: float = 0.3
) -> fg.Rewards:
    answer = await solver.generate(task.prompt, max_tokens=3)
    judged = await verifier.generate([*task.prompt, *answer.tokens], allowed=[4, 5])
    right = float(answer.tokens == [task.answer])
    sent_back = (verdict or judged.text) == "reject"
    return fg.Rewards(
        rewards={"solver": right, "verifier": right - penalty * sent_back},
        metrics={"right": right},
    )


def build(batch: int = 16, tries: int = 16, lr: float = 2e-3) -> fg.Graph:
    g = fg.Graph("two-agents", steps=20)
    solver = g.agent(
        "solver",
        fg.model(fg.models.decoder, vocab=20, layers=2, width=64, heads=4, max_length=64),
        expect=fg.Calls(mean=1.4, prompt=8, response=3),
        tokenizer=fg.tokenizers.CharTokenizer("0123456789+-="),
    )
    verifier = g.agent(
        "verifier",
        fg.model(fg.models.decoder, vocab=20, layers=2, width=48, heads=4, max_length=64),
        expect=fg.Calls(mean=1, prompt=12, response=1),
        after=solver,
    )

    tasks = g.source("tasks", arithmetic, operands=4, seed=0)
    games = tasks.episodes(
        play, name="games", agents=[solver, verifier], trajectories=tries, in_flight=4
    )
    games.evaluate("always-accept", samples=32, verdict="accept")

    for agent in (solver, verifier):
        games.rows(agent).group(by="task").train(
            agent.module, loss=fg.grpo(entropy=0.05), batch=batch, optimizer=fg.adam(lr)
        )
    return g
