"""Answers to `TurnProblem`: an ILP for few jobs, a list schedule with its gap for many.

The heuristic hands the jobs out in a few orders, each to the group that would be done first with
it, then moves and exchanges jobs of the last group while that helps, and keeps the best; in each
group those stay resident with whom it is done first, as far as they are few, else those that save
most swap seconds a byte, while memory lasts.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from flowgraph.passes.binding.turns import (
    Job,
    TurnProblem,
    Turns,
    holds,
    least_seconds,
    makespan,
)
from flowgraph.passes.matching.ilp import proved, solver_of

FEW = 4
"""Jobs of a group that swap, up to which all sets of residents are tried."""

MOST_JOBS = 14
"""Jobs up to which the ILP is tried; it then takes below a second."""


def solve_turns(
    problem: TurnProblem, *, solver: str = "highs", seconds: float = 5.0
) -> Turns | None:
    """The earliest end, or the heuristic's with a bound. None when a job fits no device."""
    if not problem.groups or any(job.memory > problem.memory for job in problem.jobs):
        return None
    quick = heuristic(problem)
    if quick.gap <= 1e-12 or len(problem.jobs) > MOST_JOBS:
        return quick
    best = _by_ilp(problem, solver, seconds)
    return best if best is not None and best.seconds <= quick.seconds else quick


def heuristic(problem: TurnProblem) -> Turns:
    """Whose memory every job fits alone: always an answer, the best of a few beginnings."""
    made = [_from(problem, order) for order in _ORDERS]
    return min(made, key=lambda turns: turns.seconds)


_ORDERS: tuple[Callable[[Job], tuple[float, ...]], ...] = (
    lambda job: (-(job.seconds + job.swap),),  # longest first: the rest evens out
    lambda job: (-job.ready, -(job.seconds + job.swap)),  # who is ready last ends last
    lambda job: (job.ready, -(job.seconds + job.swap)),  # as they come
    lambda job: (-job.memory, -job.seconds),  # who leaves least room to stay
)
"""In which jobs are handed out."""


def _from(problem: TurnProblem, order: Callable[[Job], tuple[float, ...]]) -> Turns:
    """Each job to the group that would be done first with it, then moved while that helps."""
    own: list[list[Job]] = [[] for _ in range(problem.groups)]

    def end_with(group: int, job: Job) -> tuple[float, int]:
        jobs = [*own[group], job]
        return makespan(jobs, _residents(jobs, problem.memory)), group

    for job in sorted(problem.jobs, key=lambda j: (order(j), j.name)):
        own[min(range(len(own)), key=lambda i: end_with(i, job))].append(job)
    _improve(problem, own)
    resident = {name for jobs in own for name in _residents(jobs, problem.memory)}
    return _turns(
        problem,
        {job.name: i for i, jobs in enumerate(own) for job in jobs},
        frozenset(resident),
        "heuristic",
    )


def _improve(problem: TurnProblem, own: list[list[Job]]) -> None:
    """Move a job away from the last group to be done, or exchange it for another group's, as long
    as the later of the two groups is done earlier. Each change makes that end earlier: it stops."""

    def end(jobs: Sequence[Job]) -> float:
        return makespan(jobs, _residents(jobs, problem.memory))

    ends = [end(jobs) for jobs in own]
    while True:
        last = max(range(len(own)), key=lambda i: (ends[i], -i))
        best: tuple[float, int, list[Job], list[Job]] | None = None
        for i, others in enumerate(own):
            if i == last:
                continue
            for job in own[last]:
                for back in (None, *others):
                    here = [j for j in own[last] if j is not job] + ([back] if back else [])
                    there = [j for j in others if j is not back] + [job]
                    later = max(end(here), end(there))
                    if later < ends[last] - 1e-12 and (best is None or later < best[0]):
                        best = (later, i, here, there)
        if best is None:
            return
        _, i, own[last], own[i] = best
        ends[last], ends[i] = end(own[last]), end(own[i])


def _residents(jobs: Sequence[Job], memory: int) -> list[str]:
    """Who stays: of a few jobs the best of all sets, else those that save most seconds a byte.

    The best are those with which the group is done first, and of these the ones that save most.
    """
    swaps = [job for job in jobs if job.swap > 0]
    if len(swaps) <= FEW:
        sets = (
            [job.name for job in many]
            for count in range(len(swaps) + 1)
            for many in combinations(swaps, count)
        )
        held = [stay for stay in sets if holds(jobs, stay, memory)]
        best = min(held, key=lambda stay: makespan(jobs, stay))
    else:
        best = []
        swaps = sorted(swaps, key=lambda j: (-j.swap / max(1, j.memory), j.name))
    for job in (*swaps, *(job for job in jobs if job.swap <= 0)):
        if job.name not in best and holds(jobs, [*best, job.name], memory):
            best = [*best, job.name]
    return best


def _turns(problem: TurnProblem, group: dict[str, int], resident: frozenset[str], by: str) -> Turns:
    ends = [
        makespan([job for job in problem.jobs if group[job.name] == i], resident)
        for i in range(problem.groups)
    ]
    end = max(ends, default=0.0)
    return Turns(
        group=group,
        resident=resident,
        seconds=end,
        bound=end if by != "heuristic" else min(end, least_seconds(problem)),
        by=by,
    )


def _by_ilp(problem: TurnProblem, solver: str, seconds: float) -> Turns | None:
    """None when the time limit left no answer that is proved best."""
    import pulp  # 240 ms, and most plans share nothing

    program: Any = pulp.LpProblem("turns", pulp.LpMinimize)
    jobs, groups = problem.jobs, range(problem.groups)
    here = {
        (j, g): program.add_variable(f"x_{j}_{g}", 0, 1, pulp.LpBinary)
        for j in range(len(jobs))
        for g in groups
        if g <= j  # groups are alike: job j is in one of the first j + 1
    }
    stays = {key: program.add_variable(f"r_{key[0]}_{key[1]}", 0, 1, pulp.LpBinary) for key in here}
    end = program.add_variable("end", 0)
    program += end
    for j in range(len(jobs)):
        program += pulp.lpSum(here[j, g] for g in groups if (j, g) in here) == 1
    for key in here:
        program += stays[key] <= here[key]
    for g in groups:
        own = [j for j in range(len(jobs)) if (j, g) in here]
        for first in jobs:
            later = [j for j in own if jobs[j].ready >= first.ready]
            program += end >= first.ready + pulp.lpSum(
                (jobs[j].seconds + jobs[j].swap) * here[j, g] - jobs[j].swap * stays[j, g]
                for j in later
            )
        # Shares of the memory: bytes would be far from the other numbers' size.
        largest = program.add_variable(f"largest_{g}", 0)
        share = [job.memory / max(1, problem.memory) for job in jobs]
        for j in own:
            program += largest >= share[j] * here[j, g] - share[j] * stays[j, g]
        program += pulp.lpSum(share[j] * stays[j, g] for j in own) + largest <= 1
    program.solve(solver_of(pulp, solver, seconds))
    if program.sol_status != pulp.LpSolutionOptimal:
        return None
    group = {jobs[j].name: g for (j, g), x in here.items() if (x.varValue or 0) > 0.5}
    resident = frozenset(jobs[j].name for (j, _), r in stays.items() if (r.varValue or 0) > 0.5)
    made = _turns(problem, group, resident, solver)
    # PuLP calls an answer at the time limit optimal: the bound itself has to say so.
    bound = proved(program)
    best = bound is None or made.seconds <= bound * (1 + 1e-6)
    return made if best and _held(problem, made) else None


def _held(problem: TurnProblem, made: Turns) -> bool:
    return all(
        holds([j for j in problem.jobs if made.group[j.name] == i], made.resident, problem.memory)
        for i in range(problem.groups)
    )
