"""Several layouts of one part at once: its rate is the sum of theirs.

With several allowed the rates are linear in the counts, so that the step rate is maximised by one
integer program, whose relaxation is tight: what rounding costs is a replica in a thousand devices.
`Problem` and the objective are those of `problem`; a part that must have one layout may be named.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowgraph.passes.matching.counting import count_devices
from flowgraph.passes.matching.ilp import Undecided, proved, solver_of
from flowgraph.passes.matching.mixture import ROUNDING, Mixture
from flowgraph.passes.matching.problem import Choice, Option, Problem, overfull

UNIT = 100.0
"""What a bounded rate is scaled to: a solver's error of 1e-6 is then below `ROUNDING`."""


def solve_mixed(
    problem: Problem,
    *,
    whole: Collection[str] = (),
    solver: str = "highs",
    seconds: float = 5.0,
    tolerance: float = 0.0,
) -> Mixture | None:
    """The fastest mixture, or the best that `seconds` allow with the bound that was proved.

    whole: parts that run one option only. tolerance: a gap that is good enough; with 0 the slack is
    the least, and the devices the fewest, of all answers as fast. With one, devices are left out as
    long as that costs no rate. None when no answer fits the nodes; Undecided when `seconds` were
    too few to find any.
    """
    if any(not part.options for part in problem.parts):
        return None
    search = _Search(problem, frozenset(whole), solver, seconds, tolerance)
    found = search.fastest()
    if found is None:
        return None
    counts, bound = found
    counts = _trimmed(problem, counts, whole) if tolerance > 0 else search.tightened(counts)
    return _mixture(problem, counts, bound, solver)


Counts = Mapping[tuple[int, int], int]
"""Replicas by part and option, as they are numbered in the problem; none of 0."""


@dataclass(slots=True)
class _Search:
    """One problem's programs. scale: rates are divided by it, so that they are around 1."""

    problem: Problem
    whole: frozenset[str]
    solver: str
    seconds: float
    tolerance: float
    began: float = field(default_factory=time.monotonic)

    def fastest(self) -> tuple[Counts, float] | None:
        """(counts, a rate that none exceeds), or None when it is proved that none fit."""
        import pulp

        scale = _alone(self.problem)
        if scale <= 0:
            return None
        program: Any = pulp.LpProblem("mixed", pulp.LpMaximize)
        least = program.add_variable("rate", 0)
        program += least
        model = _Model(pulp, program, self.problem, self.whole)
        for i in range(len(self.problem.parts)):
            program += model.rate(i, scale) >= least
        counts = self._solved(pulp, model, self.tolerance)
        if counts is None:
            return None
        rate = min(_rates(self.problem, counts))
        told = proved(program)
        if told is not None:
            return counts, max(rate, told * scale)
        # CBC does not tell its bound: within time that of its answer, else what counting proves.
        counted = count_devices(self.problem) if self._left() <= 0 else None
        return counts, counted.rate if counted else rate / (1 - self.tolerance)

    def tightened(self, counts: Counts) -> Counts:
        """As fast with the least slack, then the fewest devices; as found when time is up."""
        import pulp

        rates = _rates(self.problem, counts)
        rate, most = min(rates), max(rates)
        for what in ("slack", "devices"):
            program: Any = pulp.LpProblem(what, pulp.LpMinimize)
            model = _Model(pulp, program, self.problem, self.whole)
            top = program.add_variable(
                "top", UNIT * (1 - ROUNDING), UNIT * (most / rate + ROUNDING)
            )
            program += top if what == "slack" else model.devices()
            for i in range(len(self.problem.parts)):
                program += model.rate(i, rate / UNIT) >= UNIT * (1 - ROUNDING)
                program += model.rate(i, rate / UNIT) <= top
            try:
                better = self._solved(pulp, model, 0.0)
            except Undecided:
                return counts
            if better is not None:
                counts, most = better, max(_rates(self.problem, better))
        return counts

    def _left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def _solved(self, pulp: Any, model: "_Model", gap: float) -> Counts | None:
        """Read from the variables and checked: a status alone is not believed."""
        if (left := self._left()) <= 0:
            raise Undecided
        program = model.program
        program.solve(solver_of(pulp, self.solver, left, gap))
        if program.sol_status == pulp.LpSolutionInfeasible:
            return None
        counts = model.counts()
        chosen = [Choice(self.problem.parts[i].options[j], n) for (i, j), n in counts.items()]
        if {i for i, _ in counts} == set(range(len(self.problem.parts))) and not overfull(
            self.problem, chosen
        ):
            return counts
        raise Undecided


class _Model:
    """The rules as rows of a program: every part runs something, and the nodes hold all pieces."""

    def __init__(self, pulp: Any, program: Any, problem: Problem, whole: Collection[str]) -> None:
        self.program = program
        self._pulp = pulp
        self._problem = problem
        self._used: dict[tuple[int, int], Any] = {}
        for i, part in enumerate(problem.parts):
            for j, option in enumerate(part.options):
                most = most_of(problem, option)
                if most >= option.least:
                    name = f"n_{i}_{j}"
                    self._used[i, j] = program.add_variable(name, 0, most, pulp.LpInteger)
            self._limit(i, part.name in whole)
        for kind, size in sorted({(o.kind, o.piece) for o in self._options()}):
            taken = pulp.lpSum(
                self._option(key).devices // size * count
                for key, count in self._used.items()
                if self._option(key).kind == kind and self._option(key).piece >= size
            )
            program += taken <= problem.room(kind, size)

    def rate(self, part: int, scale: float) -> Any:
        own = ((key, n) for key, n in self._used.items() if key[0] == part)
        return self._pulp.lpSum(self._option(key).rate / scale * n for key, n in own)

    def devices(self) -> Any:
        return self._pulp.lpSum(self._option(key).devices * n for key, n in self._used.items())

    def counts(self) -> Counts:
        return {
            key: round(n.varValue)
            for key, n in self._used.items()
            if n.varValue is not None and n.varValue > 0.5
        }

    def _limit(self, part: int, whole: bool) -> None:
        """An option is used as often as it may be, or not at all; of a whole part, one option."""
        own = {key: n for key, n in self._used.items() if key[0] == part}
        picked = []
        for (i, j), count in own.items():
            option = self._option((i, j))
            if not whole and option.least <= 1:
                continue
            use = self.program.add_variable(f"u_{i}_{j}", 0, 1, self._pulp.LpBinary)
            self.program += count >= option.least * use
            self.program += count <= most_of(self._problem, option) * use
            picked.append(use)
        if whole:
            self.program += self._pulp.lpSum(picked) == 1
        self.program += self._pulp.lpSum(own.values()) >= 1

    def _option(self, key: tuple[int, int]) -> Option:
        return self._problem.parts[key[0]].options[key[1]]

    def _options(self) -> list[Option]:
        return [self._option(key) for key in self._used]


def most_of(problem: Problem, option: Option) -> int:
    """Replicas that the devices of the kind are enough for."""
    return min(option.most, problem.capacity(option.kind) // option.devices)


def _alone(problem: Problem) -> float:
    """No answer is faster than the slowest part with all of every kind for itself."""
    kinds = {nodes.kind: problem.capacity(nodes.kind) for nodes in problem.nodes}
    return min(
        sum(
            max((o.rate / o.devices for o in part.options if o.kind == kind), default=0.0) * count
            for kind, count in kinds.items()
        )
        for part in problem.parts
    )


def _rates(problem: Problem, counts: Counts) -> list[float]:
    rates = [0.0] * len(problem.parts)
    for (i, j), count in counts.items():
        rates[i] += problem.parts[i].options[j].rate * count
    return rates


def _trimmed(problem: Problem, counts: Counts, whole: Collection[str]) -> Counts:
    """Without replicas that the slowest part does not need, the largest first."""
    left, rates = dict(counts), _rates(problem, counts)
    least = min(rates)
    largest_first: Sequence[tuple[int, int]] = sorted(
        left, key=lambda key: (-problem.parts[key[0]].options[key[1]].devices, key)
    )
    for key in largest_first:
        option = problem.parts[key[0]].options[key[1]]
        floor = option.least if problem.parts[key[0]].name in whole or option.least > 1 else 0
        while left[key] > floor and rates[key[0]] - option.rate >= least:
            left[key] -= 1
            rates[key[0]] = _rates(problem, left)[key[0]]
    return {key: count for key, count in left.items() if count}


def _mixture(problem: Problem, counts: Counts, bound: float, by: str) -> Mixture:
    rates = _rates(problem, counts)
    rate = min(rates)
    own: dict[str, tuple[Choice, ...]] = {}
    for (i, j), count in sorted(counts.items()):
        part = problem.parts[i]
        own[part.name] = (*own.get(part.name, ()), Choice(part.options[j], count))
    return Mixture(
        choices=own,
        rate=rate,
        slack=max(rates) - rate,
        devices=sum(choice.devices for many in own.values() for choice in many),
        bound=max(rate, bound),
        by=by,
    )
