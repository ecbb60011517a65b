"""An agent's engine timed alone: prefill by tokens, decoding by steps and by rows."""

from typing import Any

import numpy as np

from flowgraph.ir.graph import Agent
from flowgraph.ir.plan import Plan
from flowgraph.profile.samples import Line
from flowgraph.profile.watching import now
from flowgraph.runtime.engine.interface import Call, Sampling
from flowgraph.runtime.policy.step_time import RESPONSE_TOKENS, expected
from flowgraph.runtime.randomness import key

BEST_OF = 3
LONGEST = 64
"""Tokens sampled a call at most: steps are alike, and more of them only take longer."""


def time_engine(engine: Any, plan: Plan, agent: Agent, vocabulary: int) -> Line:
    """Seconds of batches of calls that differ in rows, prompt and response.

    engine: one that nobody else uses, with its weights loaded.
    """
    group = next(g for g in plan.groups if agent.name in g.agents)
    longest = group.max_length
    response = min(LONGEST, max(2, int(expected(agent.expect, "response", RESPONSE_TOKENS))))
    response = min(response, longest // 2)
    room = longest - 2 * response
    prompts = sorted({1, max(1, room // 4), max(1, room)})
    rows = sorted({1, max(1, group.slots // 4), group.slots})
    line = Line(("prefill_token_s", "iteration_s", "row_s"))
    for count in rows:
        for prompt in prompts:
            for tokens in (response, 2 * response):
                seconds = min(
                    _drained(engine, count, prompt, tokens, vocabulary) for _ in range(BEST_OF)
                )
                line.add(seconds, count * prompt, tokens, count * tokens)
    return line


def _drained(engine: Any, rows: int, prompt: int, tokens: int, vocabulary: int) -> float:
    """Seconds until all calls are answered; each samples exactly `tokens`."""
    calls = [
        Call(
            id=i,
            key=key("profile", rows, prompt, tokens, i),
            # Different first tokens: equal prompts may share a prefill.
            prompt=np.full(prompt, i % max(2, vocabulary - 1), np.int64),
            sampling=Sampling(max_tokens=tokens),
        )
        for i in range(rows)
    ]
    began = now()
    engine.submit(calls)
    while engine.pending:
        engine.advance()
    return now() - began
