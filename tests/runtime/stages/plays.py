"""A user's file: what the graphs of these tests name."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypedDict

import numpy as np

from flowgraph.runtime.stages.agents import Agent
from flowgraph.runtime.stages.rewards import Rewards


@dataclass(frozen=True)
class Task:
    number: int
    text: str
    digits: list[int]


class Pair(NamedTuple):
    number: int
    digits: list[int]


class Numbered(TypedDict):
    number: int


def tasks(size: int, base: int = 0) -> list[Task]:
    return [
        Task(number=base + i, text=f"task {base + i}", digits=list(range(i % 4)))
        for i in range(size)
    ]


class Counter:
    """An iterable with a stored position."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.position = 0

    def __iter__(self) -> Iterator[Task]:
        while self.position < self.size:
            i = self.position
            self.position += 1
            yield Task(number=i, text=f"task {i}", digits=[])
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def counter(size: int) -> Counter:
    return Counter(size)


def generator(size: int) -> Iterator[Task]:
    yield from tasks(size)


def broken_tasks(size: int) -> Sequence[Task]:
    class Broken(list[Task]):
        def __getitem__(self, i: Any) -> Any:
            if i == 3:
                raise OSError("disk on fire")
            return super().__getitem__(i)

    return Broken(tasks(size))


def doubled(task: Task, *, times: int = 2) -> dict[str, Any]:
    assert isinstance(task.digits, list)
    return {"number": task.number * times, "digits": task.digits + task.digits, "text": task.text}


def doubled_pair(pair: Pair, *, times: int = 2) -> dict[str, Any]:
    return {"number": pair.number * times, "digits": pair.digits * 2, "text": "pair"}


def doubled_columns(batch: dict[str, Any], *, times: int = 2) -> dict[str, Any]:
    pieces = np.split(batch["digits"], batch["digits.offsets"][1:-1])
    return {
        "number": batch["number"] * times,
        "digits": [np.concatenate([piece, piece]) for piece in pieces],
        "text": batch["text"],
    }


def wrong_type(task: Task) -> dict[str, Any]:
    return {"number": 0.5 if task.number == 2 else 1, "digits": [], "text": ""}


def quotient(a: int, b: int) -> int:
    return a // b


def failing(task: Task) -> dict[str, Any]:
    if task.number == 2:
        return {"number": quotient(1, 0), "digits": [], "text": ""}
    return {"number": 1, "digits": [], "text": ""}


def unreadable(task: Task) -> dict[str, Any]:
    return dict(json.loads(task.text))


def even(task: Numbered) -> bool:
    return task["number"] % 2 == 0


def above(task: Any, *, least: int) -> bool:
    return bool(task.number >= least)


def even_columns(batch: dict[str, Any]) -> Any:
    return batch["number"] % 2 == 0


def collect(task: Task, *, into: str) -> None:
    with open(into, "a") as file:
        file.write(f"{task.number}\n")


def mean_baseline(rewards: Any, group_offsets: Any, *, scale: float = 1.0) -> Any:
    advantages = np.empty_like(rewards)
    for a, b in pairwise(group_offsets):
        advantages[a:b] = (rewards[a:b] - rewards[a:b].mean()) * scale
    return advantages


def too_few(rewards: Any, group_offsets: Any) -> Any:
    return rewards[:-1]


async def once(task: Task, solver: Agent) -> Rewards:
    answer = await solver.generate([task.number + 1], max_tokens=2)
    return Rewards({"solver": float(len(answer.tokens))}, {"length": len(answer.tokens)})


async def dialogue(task: Task, solver: Agent, verifier: Agent, *, turns: int = 2) -> Rewards:
    prompt = [task.number + 1]
    for _ in range(turns):
        answer = await solver.generate(prompt)
        verdict = await verifier.generate([*prompt, *answer.tokens])
        prompt = [*prompt, *verdict.tokens]
    return Rewards({"solver": [0.5 + i for i in range(turns)], "verifier": 1.0}, {"turns": turns})


async def branches(task: Task, solver: Agent) -> Rewards:
    """Two chains side by side that come to ask the same thing, and go on by what they get."""

    async def chain(start: int) -> list[int]:
        first = await solver.generate([start])
        same = await solver.generate([7, 7])
        last = await solver.generate([first.tokens[0], same.tokens[0], start])
        return last.tokens

    await asyncio.gather(chain(1), chain(2), solver.generate([9]))
    return Rewards({"solver": 0.0})


async def fastest(task: Task, solver: Agent) -> Rewards:
    """Goes on with whichever of three answers comes first, and records which."""
    calls = [asyncio.create_task(solver.generate([i])) for i in (1, 2, 3)]
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await solver.generate([len(done)])
    return Rewards({"solver": 0.0})


async def half_heard(task: Task, solver: Agent) -> Rewards:
    asyncio.create_task(solver.generate([1]))  # noqa: RUF006  # nobody waits for it: the point
    await solver.generate([2])
    asyncio.create_task(solver.generate([3]))  # noqa: RUF006
    await asyncio.sleep(0)
    return Rewards({"solver": 0.0})


async def impatient(task: Task, solver: Agent) -> Rewards:
    calls = [asyncio.create_task(solver.generate([i])) for i in (1, 2)]
    await asyncio.sleep(0.02)
    assert not any(call.done() for call in calls)
    return Rewards({})


async def sleeper(task: Task, solver: Agent, *, seconds: float = 0.01) -> Rewards:
    await asyncio.sleep(seconds if task.number % 2 else 0.0)
    await solver.generate([task.number])
    return Rewards({"solver": 1.0})


async def talker(task: Task, solver: Agent) -> Rewards:
    answer = await solver.generate("ab", allowed=[3, 4])
    assert len(answer.text) == len(answer.tokens) == len(answer.logprobs)
    return Rewards({"solver": float(set(answer.text) <= {"a", "b"})})


async def asks_otherwise(
    task: Task, solver: Agent, *, allowed: Any = None, temperature: float | None = None
) -> Rewards:
    await solver.generate([1], allowed=allowed, temperature=temperature)
    return Rewards({"solver": 0.0})


class Chat:
    """A tokenizer of messages that hold numbers."""

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return [1, *(int(message["content"]) for message in messages), 2]


async def chats(task: Task, solver: Agent) -> Rewards:
    await solver.generate([{"role": "user", "content": str(task.number)}])
    return Rewards({"solver": 0.0})


async def odd_fails(task: Task, solver: Agent) -> Rewards:
    await solver.generate([task.number])
    if task.number % 2:
        raise KeyError("no such thing")
    return Rewards({"solver": 0.0})


async def timed_out_itself(task: Task, solver: Agent) -> Rewards:
    raise TimeoutError("the user's own")


async def returns(task: Task, solver: Agent, *, what: str) -> Any:
    await solver.generate([1])
    return {
        "nothing": None,
        "stranger": Rewards({"nobody": 1.0, "solver": 1.0}),
        "no reward": Rewards({}),
        "too many": Rewards({"solver": [1.0, 2.0]}),
        "a name": Rewards({"solver": {"a": 1}}),  # type: ignore[dict-item]  # the mistake
        "array": Rewards({"solver": np.array([2.5])}),  # type: ignore[dict-item]  # allowed
        "not finite": Rewards({"solver": float("nan")}),
    }[what]


async def asks(task: Task, solver: Agent, *, prompt: Any) -> Rewards:
    await solver.generate(list(prompt))
    return Rewards({"solver": 0.0})
