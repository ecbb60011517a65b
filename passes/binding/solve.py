"""Answers to `TurnProblem`: an ILP for few jobs, a list schedule with its gap for many.

The heuristic takes jobs by falling work and gives each to the group that would be done first with
it, then moves and exchanges jobs of the last group while that helps; in each group the jobs that
save most swap seconds a byte stay resident while memory lasts.
"""

from collections.abc import Sequence
from typing import Any

from flowgraph.passes.binding.turns import (
    Job,
    TurnProblem,
    Turns,
    holds,
    least_seconds,
    makespan,
)
from flowgraph.passes.matching.ilp import solver_of

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
    """Whose memory every job fits alone: always an answer."""
    own: list[list[Job]] = [[] for _ in range(problem.groups)]
    for job in sorted(problem.jobs, key=lambda j: (-(j.seconds + j.swap), j.name)):
        first = min(range(len(own)), key=lambda i: (makespan([*own[i], job], ()), i))
        own[first].append(job)
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
    stay: list[str] = []
    for job in sorted(jobs, key=lambda j: (-j.swap / max(1, j.memory), j.name)):
        if holds(jobs, [*stay, job.name], memory):
            stay.append(job.name)
    return stay


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
    proved = end.varValue is not None and made.seconds <= end.varValue * (1 + 1e-6)
    return made if proved and _held(problem, made) else None


def _held(problem: TurnProblem, made: Turns) -> bool:
    return all(
        holds([j for j in problem.jobs if made.group[j.name] == i], made.resident, problem.memory)
        for i in range(problem.groups)
    )
