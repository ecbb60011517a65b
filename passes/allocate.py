"""Devices over parts that run at once, such that the slowest part is as fast as it can be.

A pure solver (`Problem -> Solution`) and an independent check of any solution.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """seconds: of the part's whole demand on one device; least, most: devices it may get."""

    name: str
    seconds: float
    least: int = 1
    most: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    parts: tuple[Part, ...]
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """counts: devices by part. seconds: of the slowest part. slowest: its name."""

    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float
    slowest: str


def allocate(problem: Problem) -> Solution | None:
    """Minimise the slowest part's seconds, then the devices used. None when `least` do not fit.

    Giving the next device to the slowest part is optimal: any faster solution gives that part more
    devices than it has, and every other part needs no more than it has been given. O(D log P).
    """
    counts = {part.name: part.least for part in problem.parts}
    free = problem.devices - sum(counts.values())
    if free < 0:
        return None
    queue = [(-part.seconds / part.least, i) for i, part in enumerate(problem.parts)]
    heapq.heapify(queue)
    while queue and free > 0:
        _, i = queue[0]
        part = problem.parts[i]
        if counts[part.name] >= part.most or part.seconds <= 0.0:
            break
        counts[part.name] += 1
        free -= 1
        heapq.heapreplace(queue, (-part.seconds / counts[part.name], i))
    return _fewest(problem, counts)


def _fewest(problem: Problem, counts: Mapping[str, int]) -> Solution:
    """Take back what is not needed to be as fast as the slowest part."""
    slowest = max(problem.parts, key=lambda part: part.seconds / counts[part.name])
    bound = slowest.seconds / counts[slowest.name]
    needed = {}
    for part in problem.parts:
        count = counts[part.name]
        while count > part.least and part.seconds / (count - 1) <= bound:
            count -= 1
        needed[part.name] = count
    return Solution(counts=needed, seconds=bound, slowest=slowest.name)


def check(problem: Problem, solution: Solution) -> list[str]:
    """What is wrong with a solution, whoever made it; empty when nothing is."""
    wrong = []
    for part in problem.parts:
        count = solution.counts.get(part.name, 0)
        if not part.least <= count <= part.most:
            wrong.append(f"{part.name} has {count} devices, not {part.least} to {part.most}")
        elif part.seconds / count > solution.seconds * (1 + 1e-9):
            wrong.append(f"{part.name} takes longer than the {solution.seconds} s stated")
    if sum(solution.counts.values()) > problem.devices:
        wrong.append(f"{sum(solution.counts.values())} devices used of {problem.devices}")
    return wrong
