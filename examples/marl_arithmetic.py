"""Two language models learn to work together: a solver answers, a verifier may send it back once.

Both start from random weights and differ in size. An accepted answer ends the game; a rejected one
gets a second try, which costs the team, so neither "always accept" nor "always reject" is best.
"""

from dataclasses import dataclass

import flowgraph as fg
from flowgraph.models import decoder
from flowgraph.tokenizers import CharTokenizer

TOKENIZER = CharTokenizer("0123456789+-=?!yn")
ACCEPT, REJECT = TOKENIZER.encode("yn")
SECOND_TRY = 0.3
WELL_FORMED = 0.1


def build(
    batch: int = 16, tries: int = 16, lr: float = 2e-3, steps: int = 600, eval_samples: int = 256
) -> fg.Graph:
    g = fg.Graph("marl-arithmetic", steps=steps)
    small = {"vocab": TOKENIZER.vocab, "layers": 2, "heads": 4, "max_length": 32}
    solver = g.agent(
        "solver",
        fg.model(decoder, width=64, embedding_std=0.2, **small),
        expect=fg.Calls(mean=1.5, prompt=8, response=3),
        max_tokens=4,
        stop=[TOKENIZER.eos],
    )
    verifier = g.agent(
        "verifier",
        fg.model(decoder, width=48, embedding_std=0.2, **small),
        expect=fg.Calls(mean=2, prompt=9, response=1),
        max_tokens=1,
        after=solver,
    )
    tasks = g.source("tasks", arithmetic, operand=4)
    games = tasks.episodes(play, agents=[solver, verifier], trajectories=tries, in_flight=batch)
    for agent in (solver, verifier):
        games.rows(agent).group(by="task").train(
            agent.module,
            loss=fg.grpo(entropy=0.05),
            batch=batch,
            micro_batch=fg.tokens(4096),
            optimizer=fg.adam(lr),
        )
    games.evaluate("trained", samples=eval_samples)
    games.evaluate("always-accept", samples=eval_samples, verdict="accept")
    games.evaluate("always-reject", samples=eval_samples, verdict="reject")
    return g


@dataclass(frozen=True, slots=True)
class Task:
    """A question, its answer, and a wrong answer for the verifier to practise on."""

    question: str
    answer: str
    decoy: str


def arithmetic(*, operand: int) -> list[Task]:
    """Sums and differences of two numbers up to `operand`, from reasoning-gym's chain_sum."""
    import reasoning_gym

    drawn = reasoning_gym.create_dataset(
        "chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=1, seed=0, size=4000
    )
    pairs = [(e["metadata"]["expression"].replace(" ", ""), e["answer"]) for e in drawn]
    pairs = [(q, a) for q, a in pairs if max(int(q[0]), int(q[2])) <= operand]
    tasks = []
    for i, (question, answer) in enumerate(pairs):
        others = (pairs[(i + j) % len(pairs)][1] for j in range(1, len(pairs)))
        tasks.append(Task(question, answer, next(a for a in others if a != answer)))
    return tasks


async def play(
    task: Task, solver: fg.Agent, verifier: fg.Agent, *, verdict: str = "verifier"
) -> fg.Rewards:
    """One game. verdict: whose word counts; `accept` and `reject` are constant."""
    first = await solver.generate(TOKENIZER.encode(f"{task.question}=", bos=True))
    shown = TOKENIZER.decode(first.tokens)
    asked = [f"{task.question}={shown}?"]
    right = shown == task.answer
    asked.append(f"{task.question}={task.decoy if right else task.answer}?")
    said = []
    for question in asked[:1] if verdict != "verifier" else asked:
        said.append((await verifier.generate(TOKENIZER.encode(question, bos=True))).tokens[0])
    accepted = {"accept": True, "reject": False}.get(verdict, said[0] == ACCEPT)
    rewards = [score(first.tokens, task.answer)]
    final, cost = right, 0.0
    if not accepted:
        again = TOKENIZER.encode(f"{task.question}!{shown}=", bos=True)
        second = await solver.generate(again)
        rewards.append(score(second.tokens, task.answer))
        final, cost = TOKENIZER.decode(second.tokens) == task.answer, SECOND_TRY
    truth = [right, not right][: len(said)]
    judged = [float(s == (ACCEPT if t else REJECT)) for s, t in zip(said, truth, strict=True)]
    team = (final - cost + SECOND_TRY) / (1.0 + SECOND_TRY)
    return fg.Rewards({"solver": rewards, "verifier": judged}, metrics={"team": team})


def score(tokens: list[int], answer: str) -> float:
    """1 for the answer, a little for something that is a number at all."""
    text = TOKENIZER.decode(tokens)
    if text == answer and tokens[-1] == TOKENIZER.eos:
        return 1.0
    return WELL_FORMED if text.removeprefix("-").isdigit() else 0.0
