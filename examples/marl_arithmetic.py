"""Two language models learn to work together: a solver answers, a verifier may send it back once.

Both start from random weights and differ in size. An accepted answer ends the game; a rejected one
gets a second try, which costs the team, so neither "always accept" nor "always reject" is best.
"""

from dataclasses import dataclass
from typing import Any

import flowgraph as fg
from flowgraph.models import decoder, hf_causal_lm, hf_tokenizer
from flowgraph.tokenizers import CharTokenizer

TOKENIZER = CharTokenizer("yn0123456789-+=?!")
VERDICT, NUMBER = TOKENIZER.specials + 2, TOKENIZER.specials + 13  # y n, and 0 to 9 and -
SOLVE = "Answer with one number and nothing else"
JUDGE = "Is this right? Answer y or n and nothing else"
SECOND_TRY = 0.2
WELL_FORMED = 0.1


def build(
    batch: int = 16,
    tries: int = 16,
    lr: float = 2e-3,
    steps: int = 500,
    seed: int = 0,
    eval_samples: int = 256,
    model: str = "",
) -> fg.Graph:
    """model: a Hugging Face language model on disk, of which each agent then trains a copy."""
    g = fg.Graph("marl-arithmetic", steps=steps, seed=seed)
    small = {"vocab": TOKENIZER.vocab, "layers": 2, "heads": 4, "embedding_std": 0.05}
    models = [  # what each can say comes first in the alphabet: an answer, a verdict
        fg.model(decoder, width=64, max_length=32, outputs=NUMBER, **small),
        fg.model(decoder, width=48, max_length=32, outputs=VERDICT, **small),
    ]
    tokenizer: Any = TOKENIZER
    length = 32
    if model:
        models = [fg.model(hf_causal_lm, path=model)] * 2
        tokenizer, length = fg.model(hf_tokenizer, path=model), 96
    solver = g.agent(
        "solver",
        models[0],
        expect=fg.Calls(mean=1.5, prompt=8, response=3),
        tokenizer=tokenizer,
        max_tokens=3,
        max_length=length,
    )
    verifier = g.agent(
        "verifier",
        models[1],
        expect=fg.Calls(mean=2, prompt=9, response=1),
        tokenizer=tokenizer,
        max_tokens=1,
        max_length=length,
        after=solver,
    )
    tasks = g.source("tasks", arithmetic, operand=4, noise=0.4)
    games = tasks.episodes(play, agents=[solver, verifier], trajectories=tries, in_flight=batch)
    for agent, entropy in ((solver, 0.1), (verifier, 0.6)):
        games.rows(agent).group(by="task").train(
            agent.module,
            loss=fg.grpo(entropy=entropy),
            batch=batch,
            micro_batch=fg.tokens(1024 if model else 4096),
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
    end = [solver.tokenizer.eos]
    first = await solver.generate(ask(solver, SOLVE, f"{task.question}="), stop=end)
    rewards = [score(solver, first, task.answer)]
    shown = task.decoy if task.garbled else first.text.strip()
    right = shown == task.answer
    # The verifier also judges the opposite case, so that neither verdict pays by itself.
    opposite = task.decoy if right else task.answer
    said, practised = [
        (await verifier.generate(ask(verifier, JUDGE, f"{task.question}={text}?"))).text
        for text in (shown, opposite)
    ]
    judged = [judge(said, right), judge(practised, not right)]
    accepted = {"accept": True, "reject": False}.get(verdict, word(said) == "y")
    team = float(right)
    if not accepted:
        again = ask(solver, SOLVE, f"{task.question}!{shown}=")
        second = await solver.generate(again, stop=end)
        rewards.append(score(solver, second, task.answer))
        team = (rewards[-1] == 1.0) - SECOND_TRY
    scaled = (team + SECOND_TRY) / (1.0 + SECOND_TRY)
    return fg.Rewards({"solver": rewards, "verifier": judged}, metrics={"team": scaled})


def ask(agent: fg.Agent, what: str, text: str) -> Any:
    """The small models learn to read `text` itself; one that chats is told what to do with it."""
    if agent.tokenizer == TOKENIZER:
        return TOKENIZER.encode(text, bos=True)
    return [{"role": "user", "content": f"{what}: {text}"}]


def score(solver: fg.Agent, said: fg.Generation, answer: str) -> float:
    """1 for the answer, a little for a number that comes to its end."""
    text = said.text.strip()
    if said.tokens[-1] != solver.tokenizer.eos or not text.removeprefix("-").isdigit():
        return 0.0
    return 1.0 if text == answer else WELL_FORMED


def judge(said: str, right: bool) -> float:
    """1 for the right verdict, a little for the other one, nothing for another word."""
    if word(said) == ("y" if right else "n"):
        return 1.0
    return WELL_FORMED if word(said) in ("y", "n") else 0.0


def word(said: str) -> str:
    return said.strip().lower()[:1]
