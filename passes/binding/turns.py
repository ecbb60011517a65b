"""Which trainers take turns on which device group, in what order, and who stays on the device.

A job is a module's training of a step. It may begin when its agent's rollout is done (`ready`), and
needs a device group for `seconds`; unless its state stays resident, swapping it in and out takes
`swap` seconds more. Objective: the time at which the last group is done.

In a group, the order of readiness is optimal (1 | r_j | C_max; an exchange argument), and the group
is then done at the latest of `ready_k + work of all that are ready no earlier than k`. That is
linear in who is where, which the ILP uses; `makespan` here runs the group instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowgraph.runtime.policy.step_chain import turns_end

EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """ready, seconds, swap: s. memory: bytes a device that its state takes while it trains or is
    resident."""

    name: str
    ready: float
    seconds: float
    swap: float = 0.0
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProblem:
    """groups: device groups alike; memory: bytes of each of their devices."""

    jobs: tuple[Job, ...]
    groups: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """group: by job. resident: jobs that never leave their devices. seconds: when all is done.

    bound: no answer is done earlier. by: `highs`, `cbc` or `heuristic`.
    """

    group: Mapping[str, int]
    resident: frozenset[str]
    seconds: float
    bound: float
    by: str

    @property
    def gap(self) -> float:
        """How much of the time a better answer may save at most, as a share."""
        return max(0.0, 1.0 - self.bound / self.seconds) if self.seconds > 0 else 0.0


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """By readiness; of those ready together the longest first, to overlap the others' swaps."""
    return sorted(jobs, key=lambda job: (job.ready, -job.seconds, job.name))


def makespan(jobs: Iterable[Job], resident: Iterable[str]) -> float:
    """When a group that runs these jobs in order is done, s."""
    stay = set(resident)
    return turns_end(
        (job.ready, job.seconds + (0.0 if job.name in stay else job.swap)) for job in in_order(jobs)
    )


def holds(jobs: Iterable[Job], resident: Iterable[str], memory: int) -> bool:
    """Whether a device holds all residents and, one at a time, each of the others."""
    stay = set(resident)
    others = [job.memory for job in jobs if job.name not in stay]
    return sum(j.memory for j in jobs if j.name in stay) + max(others, default=0) <= memory


def check(problem: TurnProblem, turns: Turns) -> list[str]:
    """What is wrong with an answer, whoever made it; empty when nothing is."""
    wrong = []
    names = {job.name for job in problem.jobs}
    if set(turns.group) != names:
        wrong.append("not every job has a group")
    if not turns.resident <= names:
        wrong.append("residents that are no jobs")
    for i in sorted(set(turns.group.values())):
        if not 0 <= i < problem.groups:
            wrong.append(f"group {i} of {problem.groups}")
        own = [job for job in problem.jobs if turns.group.get(job.name) == i]
        if not holds(own, turns.resident, problem.memory):
            wrong.append(f"group {i} needs more than {problem.memory} bytes a device")
        done = makespan(own, turns.resident)
        if done > turns.seconds * (1 + EPSILON):
            wrong.append(f"group {i} is done after {done:g} s, not {turns.seconds:g} s")
    if turns.bound > turns.seconds * (1 + EPSILON):
        wrong.append(f"done before its own bound of {turns.bound:g} s")
    return wrong


def least_seconds(problem: TurnProblem) -> float:
    """A bound: each job alone, and all work from any moment on spread over all groups, with the
    swaps that the memory of all of them together does not spare."""
    alone = max((job.ready + job.seconds for job in problem.jobs), default=0.0)
    spread = 0.0
    for first in problem.jobs:
        later = [job for job in problem.jobs if job.ready >= first.ready]
        work = sum(job.seconds for job in later) + _least_swaps(later, problem)
        spread = max(spread, first.ready + work / problem.groups)
    return max(alone, spread)


def _least_swaps(jobs: Iterable[Job], problem: TurnProblem) -> float:
    """Seconds, when the residents' memory may be cut to fill that of all groups exactly."""
    left, paid = float(problem.groups * problem.memory), 0.0
    for job in sorted(jobs, key=lambda j: -j.swap / max(1, j.memory)):
        stays = min(1.0, left / job.memory) if job.memory else 1.0
        left -= stays * job.memory
        paid += (1.0 - stays) * job.swap
    return paid
