"""One choice a part such that all pieces fit the nodes, with the fewest devices: an ILP.

PuLP with HiGHS, or CBC as a second opinion. Only for what counting devices leaves open.
"""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from flowgraph.passes.matching.problem import Choice, Problem, fits

SOLVERS = ("highs", "cbc")


class Undecided(Exception):
    """The time limit passed before there was an answer or a proof that there is none.

    What a plan may be is then unknown, not refused: more seconds would tell.
    """


def cheapest(
    problem: Problem,
    candidates: Sequence[tuple[str, Sequence[Choice]]],
    *,
    solver: str,
    seconds: float,
    optimal: bool = True,
) -> Mapping[str, Choice] | None:
    """By part, the choices with the fewest devices; None when it is proved that none fit.

    optimal: False to stop at the first answer. Raises Undecided at the time limit.
    """
    # 240 ms to import: most plans never come here.
    import pulp

    program: Any = pulp.LpProblem("layouts", pulp.LpMinimize)
    offered = [(name, _undominated(choices)) for name, choices in candidates]
    variables = {
        (i, j): program.add_variable(f"x_{i}_{j}", 0, 1, pulp.LpBinary)
        for i, (_, choices) in enumerate(offered)
        for j in range(len(choices))
    }
    cost = {key: offered[key[0]][1][key[1]].devices for key in variables}
    program += (
        pulp.lpSum(cost[key] * x for key, x in variables.items())
        if optimal
        else 0 * next(iter(variables.values()))
    )
    for i, (_, choices) in enumerate(offered):
        program += pulp.lpSum(variables[i, j] for j in range(len(choices))) == 1
    for row, room in _rows(problem, offered):
        program += pulp.lpSum(count * variables[key] for key, count in row.items()) <= room
    program.solve(solver_of(pulp, solver, seconds))
    return _answer(pulp, program, problem, offered, variables)


def _rows(
    problem: Problem, offered: Sequence[tuple[str, Sequence[Choice]]]
) -> Iterable[tuple[dict[tuple[int, int], int], int]]:
    """The rules of `problem.fits`: for each kind and size of piece, what takes of it, and room."""
    all_choices = [
        ((i, j), choice) for i, (_, own) in enumerate(offered) for j, choice in enumerate(own)
    ]
    sizes = sorted({(c.option.kind, c.option.piece) for _, c in all_choices})
    for kind, size in sizes:
        row = {
            key: choice.devices // size
            for key, choice in all_choices
            if choice.option.kind == kind and choice.option.piece >= size
        }
        yield row, problem.room(kind, size)


def _undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Without those for which another of the same kind takes no more, in no larger pieces."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.devices, c.option.piece)):
        if not any(
            other.option.kind == choice.option.kind and other.option.piece <= choice.option.piece
            for other in kept
        ):
            kept.append(choice)
    return kept


def solver_of(pulp: Any, name: str, seconds: float, gap: float = 0.0) -> Any:
    """PuLP's solver of that name, on one thread. gap: of the objective, at which it may stop."""
    if name == "highs":
        _hold_banner()
        # HiGHS answers "Not Solved" when another use in this process had another number of threads.
        _scheduler_reset()
        return pulp.HiGHS(msg=False, timeLimit=seconds, threads=1, gapRel=gap)
    if name == "cbc":
        # PuLP 4 has no CBC of its own any more, and only the command of an installed one.
        bundled = getattr(pulp, "PULP_CBC_CMD", None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made = bundled or pulp.COIN_CMD
            return made(msg=False, timeLimit=seconds, threads=1, gapRel=gap)
    raise ValueError(f"solver: expects one of {', '.join(SOLVERS)}, got {name!r}")


def proved(program: Any) -> float | None:
    """The objective that HiGHS has proved that no answer beats; None of a solver that does not say.

    PuLP calls an answer at the time limit optimal, which it need not be.
    """
    model: Any = getattr(program, "solverModel", None)
    if not hasattr(model, "getInfo"):
        return None
    bound = float(model.getInfo().mip_dual_bound)
    # PuLP hands a maximisation over as a minimisation of the negative.
    return -bound if program.sense == _MAXIMIZE else bound


_MAXIMIZE = -1
"""PuLP's `LpMaximize`, which is imported only where it is used."""


def _scheduler_reset() -> None:
    import highspy

    reset: Any = highspy.Highs.resetGlobalScheduler
    reset(True)


@lru_cache(maxsize=1)
def _hold_banner() -> None:
    """The first HiGHS of a process prints its name, whatever it is told: where `--json` goes."""
    import highspy

    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed: nothing to keep clean
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        made: Any = highspy.Highs
        made()
    os.dup2(kept, 1)
    os.close(kept)


def _answer(
    pulp: Any,
    program: Any,
    problem: Problem,
    offered: Sequence[tuple[str, Sequence[Choice]]],
    variables: Mapping[tuple[int, int], Any],
) -> Mapping[str, Choice] | None:
    """Read from the variables and checked: a status alone is not believed."""
    if program.sol_status == pulp.LpSolutionInfeasible:
        return None
    picked = {
        offered[i][0]: offered[i][1][j]
        for (i, j), x in variables.items()
        if x.varValue is not None and x.varValue > 0.5
    }
    if len(picked) == len(offered) and fits(problem, picked.values()):
        return picked
    raise Undecided
