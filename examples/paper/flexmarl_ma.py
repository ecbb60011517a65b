"""FlexMARL's set-up "MA" (arXiv 2602.09578): a team of 14B agents, few of which do most work.

For planning: `flowgraph compile`, `inspect` and `simulate` read descriptions, and build no model.
What the paper states says "stated", what follows from its figures "derived", all else "assumed".
"""

import json
from dataclasses import dataclass
from pathlib import Path

import flowgraph as fg
from flowgraph.models import decoder

CALLS = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 0.7, "e": 0.7}
"""Generate calls a trajectory. Stated: a few agents get more than 76 % of all calls. Assumed: five
agents, and who calls how often (b and c together get 77 %)."""

RESPONSE = fg.spread(172, p95=900)
"""Tokens a call. Derived: 910.2 tokens/s x 126.1 s = 114,800 a step, of 64 trajectories: 1793 each,
over 10.4 calls. Assumed: the tail, of which the paper only says that it is long."""

PROMPT = fg.spread(1500, p95=4000)
"""Assumed: what an agent reads before it answers."""

QWEN_14B = fg.model(  # stated: Qwen2.5-14B; its published shape, but for the biases of q, k, v
    decoder,
    vocab=152_064,
    layers=48,
    width=5120,
    heads=40,
    kv_heads=8,
    hidden=13_824,
    max_length=16_384,  # assumed: 8192 of a response, stated, and as many of a prompt
    tied=False,
    rope_base=1e6,
)


def build(
    tasks: str = "tasks.jsonl",
    batch: int = 4,  # derived: a global batch of 64, stated, is 4 queries x 16 trajectories
    tries: int = 16,  # stated: 16 trajectories of a query
    micro_batch: int = 32_768,  # tokens; derived: 16 samples, stated, of 1700 tokens, and room
    lr: float = 1e-6,  # stated
    steps: int = 100,  # assumed
) -> fg.Graph:
    g = fg.Graph("flexmarl-ma", steps=steps, cluster="../clusters/cluster-48x16.yaml")  # stated
    agents: list[fg.AgentRef] = []
    for name, calls in CALLS.items():
        weights = g.module(name, QWEN_14B, dtype="bfloat16")  # assumed: bfloat16
        agents.append(
            g.agent(
                name,
                weights,
                expect=fg.Calls(mean=calls, prompt=PROMPT, response=RESPONSE),
                max_tokens=8192,  # stated
                after=agents[-1:],  # assumed: each reads what the one before it said
            )
        )
    games = g.source("tasks", read_tasks, path=tasks).episodes(
        play,
        agents=agents,
        trajectories=tries,
        in_flight=4,  # stated: 4 queries at once
        timeout_s=1800.0,
    )
    for agent in agents:
        games.rows(agent).group(by="task").train(
            agent.module,
            loss=fg.grpo(),  # stated
            batch=batch,
            micro_batch=fg.tokens(micro_batch),
            optimizer=fg.adam(lr),  # stated
        )
    return g


@dataclass(frozen=True, slots=True)
class Task:
    """A query as token ids, and the answer that is wanted."""

    prompt: list[int]
    answer: list[int]


def read_tasks(*, path: str) -> list[Task]:
    """One JSON object a line: {"prompt": [...], "answer": [...]}. The paper's are not public."""
    with Path(path).open() as lines:
        return [Task(**json.loads(line)) for line in lines]


async def play(
    task: Task, a: fg.Agent, b: fg.Agent, c: fg.Agent, d: fg.Agent, e: fg.Agent
) -> fg.Rewards:
    """Assumed: a plans, b works five times, c checks three of these, d and e polish at times."""
    text = [*task.prompt, *(await a.generate(task.prompt)).tokens]
    said: list[int] = []
    for worker in (b, c, b, b, c, b, b, c):
        said = (await worker.generate([*text, *said])).tokens
    if len(said) % 10 < 7:
        said = (await d.generate([*text, *said])).tokens
        said = (await e.generate([*text, *said])).tokens
    right = float(said[-len(task.answer) :] == task.answer)
    return fg.Rewards(dict.fromkeys(CALLS, right))
