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
SECOND_TRY = 0.2
WELL_FORMED = 0.1


def build(
    batch: int = 16,
    tries: int = 16,
    lr: float = 2e-3,
    steps: int = 500,
    seed: int = 0,
    eval_samples: int = 256,
) -> fg.Graph:
    g = fg.Graph("marl-arithmetic", steps=steps, seed=seed)
    small = {"vocab": TOKENIZER.vocab, "layers": 2, "heads": 4, "max_length": 32}
    solver = g.agent(
        "solver",
        fg.model(decoder, width=64, embedding_std=0.05, **small),
        expect=fg.Calls(mean=1.5, prompt=8, response=3),
        max_tokens=3,
        stop=[TOKENIZER.eos],
    )
    verifier = g.agent(
        "verifier",
        fg.model(decoder, width=48, embedding_std=0.05, **small),
        expect=fg.Calls(mean=2, prompt=9, response=1),
        max_tokens=1,
        after=solver,
    )
    tasks = g.source("tasks", arithmetic, operand=4, noise=0.4)
    games = tasks.episodes(play, agents=[solver, verifier], trajectories=tries, in_flight=batch)
    losses = {
        solver: fg.grpo(entropy=0.1),
        verifier: fg.grpo(entropy=0.15, scale_by_std=False),
    }
    for agent, loss in losses.items():
        games.rows(agent).group(by="task").train(
            agent.module,
            loss=loss,
            batch=batch,
            micro_batch=fg.tokens(4096),
            optimizer=fg.adam(lr, betas=(0.9, 0.99)),
            schedule=fg.linear_decay(last=0.4, warmup=10),
        )
    games.evaluate("trained", samples=eval_samples)
    games.evaluate("always-accept", samples=eval_samples, verdict="accept")
    games.evaluate("always-reject", samples=eval_samples, verdict="reject")
    return g


@dataclass(frozen=True, slots=True)
class Task:
    """A question, its answer, a wrong answer, and whether the first message arrives garbled."""

    question: str
    answer: str
    decoy: str
    garbled: bool


def arithmetic(*, operand: int, noise: float) -> list[Task]:
    """Sums and differences of two numbers up to `operand`, from reasoning-gym's chain_sum.

    noise: share of tasks whose first answer reaches the verifier as a wrong one.
    """
    import reasoning_gym

    drawn = reasoning_gym.create_dataset(
        "chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=1, seed=0, size=8000
    )
    pairs = [(e["metadata"]["expression"].replace(" ", ""), e["answer"]) for e in drawn]
    pairs = [(q, a) for q, a in pairs if max(int(q[0]), int(q[2])) <= operand]
    tasks = []
    for i, (question, answer) in enumerate(pairs):
        others = (pairs[(i + j) % len(pairs)][1] for j in range(1, len(pairs)))
        decoy = next(a for a in others if a != answer)
        garbled = int((i + 1) * noise) > int(i * noise)
        tasks.append(Task(question, answer, decoy, garbled))
    return tasks


async def play(
    task: Task, solver: fg.Agent, verifier: fg.Agent, *, verdict: str = "verifier"
) -> fg.Rewards:
    """One game. verdict: whose word counts; `accept` and `reject` are constant."""
    first = await solver.generate(TOKENIZER.encode(f"{task.question}=", bos=True))
    rewards = [score(first.tokens, task.answer)]
    shown = task.decoy if task.garbled else TOKENIZER.decode(first.tokens)
    right = shown == task.answer
    # The verifier also judges the opposite case, so that neither verdict pays by itself.
    opposite = task.decoy if right else task.answer
    said, practised = [
        (await verifier.generate(TOKENIZER.encode(f"{task.question}={text}?", bos=True))).tokens[0]
        for text in (shown, opposite)
    ]
    judged = [judge(said, right), judge(practised, not right)]
    accepted = {"accept": True, "reject": False}.get(verdict, said == ACCEPT)
    team = float(right)
    if not accepted:
        again = TOKENIZER.encode(f"{task.question}!{shown}=", bos=True)
        second = await solver.generate(again)
        rewards.append(score(second.tokens, task.answer))
        team = (rewards[-1] == 1.0) - SECOND_TRY
    scaled = (team + SECOND_TRY) / (1.0 + SECOND_TRY)
    return fg.Rewards({"solver": rewards, "verifier": judged}, metrics={"team": scaled})


def score(tokens: list[int], answer: str) -> float:
    """1 for the answer, a little for a number that comes to its end."""
    text = TOKENIZER.decode(tokens)
    if tokens[-1] != TOKENIZER.eos or not text.removeprefix("-").isdigit():
        return 0.0
    return 1.0 if text == answer else WELL_FORMED


def judge(said: int, right: bool) -> float:
    """1 for the right verdict, a little for the other one, nothing for another word."""
    if said == (ACCEPT if right else REJECT):
        return 1.0
    return WELL_FORMED if said in (ACCEPT, REJECT) else 0.0
