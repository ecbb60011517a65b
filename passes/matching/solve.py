"""The best answer: bisection over the rate, with an oracle that says whether a rate can be had.

For a wanted rate each option needs a known number of replicas, so that only the choice of one
option a part is left. The oracle counts devices as long as that decides; what it leaves open
(several kinds, nodes that pieces do not fill) goes to an ILP. Every refusal is a proof, so that the
lowest refused rate bounds the optimum. The relaxation that only counts is searched first: its
optimum is the bound that the search with nodes starts from.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flowgraph.passes.matching.ilp import Undecided, cheapest
from flowgraph.passes.matching.problem import (
    Choice,
    Option,
    Part,
    Problem,
    Solution,
    efficient,
    fits,
)

Candidates = Sequence[tuple[str, Sequence[Choice]]]
"""By part, what it may choose from at a rate."""

Picked = Mapping[str, Choice]
Oracle = Callable[[Candidates], Picked | None]


FIRST_STEP = 2.5e-4
"""A quarter of the step down, as a share of the bound, when the bound itself is refused."""


def solve(
    problem: Problem, *, solver: str = "highs", seconds: float = 20.0, tolerance: float = 0.0
) -> Solution | None:
    """The best answer, or the best that `seconds` allow with the bound that was proved.

    None when no answer fits the nodes; Undecided when `seconds` were too few to find one or to
    prove that. solver: `highs` or `cbc`, for what counting leaves open. tolerance: a gap that is
    good enough.
    """
    parts = tuple(_usable(problem, efficient(part)) for part in problem.parts)
    pruned = Problem(parts=parts, nodes=problem.nodes)
    if any(not part.options for part in parts):
        return None
    search = Search(pruned, solver=solver, seconds=seconds)
    relaxed, _ = _bisect(pruned, search.counted, _fastest(pruned), 0.0)
    if relaxed is None:
        return None
    found, bound = _bisect(pruned, search.packed, _rate(relaxed), tolerance)
    if found is None and bound > 0:  # undecided: what is found without proof is better than nothing
        found, _ = _bisect(pruned, search.greedy, bound, 0.0)
        if found is None:
            raise Undecided
        search.by = "greedy"
    if found is None:
        return None
    found = _tighten(pruned, search, found)
    rate = _rate(found)
    return Solution(
        choices=found,
        rate=rate,
        slack=max(choice.rate for choice in found.values()) - rate,
        devices=sum(choice.devices for choice in found.values()),
        bound=max(rate, bound),
        by=search.by,
    )


@dataclass(slots=True)
class Search:
    """The oracles of one problem. seconds: budget; what is left of it limits each ILP."""

    problem: Problem
    solver: str
    seconds: float
    began: float = field(default_factory=time.monotonic)
    by: str = "bisection"

    def counted(self, candidates: Candidates) -> Picked | None:
        """Fewest devices of each part, or None when nodes have not as many altogether."""
        if any(not choices for _, choices in candidates):
            return None
        picked = {name: min(own, key=_size) for name, own in candidates}
        kinds = {choice.option.kind for _, own in candidates for choice in own}
        enough = sum(c.devices for c in picked.values()) <= sum(map(self.problem.capacity, kinds))
        return picked if enough else None

    def packed(self, candidates: Candidates) -> Picked | None:
        """Fewest devices such that all fit the nodes, or None. Raises Undecided."""
        picked = self.counted(candidates)
        if picked is None or fits(self.problem, picked.values()):
            return picked
        left = self.seconds - (time.monotonic() - self.began)
        if left <= 0:
            raise Undecided
        self.by = self.solver
        return cheapest(self.problem, candidates, solver=self.solver, seconds=left)

    def greedy(self, candidates: Candidates) -> Picked | None:
        """Part by part the cheapest choice that still fits, the largest part first, at several
        prices of a device of the kind that most would take. None proves nothing."""
        if any(not own for _, own in candidates):
            return None
        wanted = Counter(min(own, key=_size).option.kind for _, own in candidates)
        scarce = wanted.most_common(1)[0][0]
        tried = (self._greedy(candidates, scarce, price) for price in PRICES)
        return next((picked for picked in tried if picked is not None), None)

    def _greedy(self, candidates: Candidates, scarce: str, price: float) -> Picked | None:
        def cost(choice: Choice) -> tuple[float, int]:
            dear = price if choice.option.kind == scarce else 1.0
            return choice.devices * dear, choice.option.piece

        picked: dict[str, Choice] = {}
        for name, own in sorted(candidates, key=lambda it: -min(map(_devices, it[1]))):
            tried = sorted(own, key=cost)
            chosen = next((c for c in tried if fits(self.problem, [*picked.values(), c])), None)
            if chosen is None:
                return None
            picked[name] = chosen
        return picked


PRICES = (1.0, 1.3, 1.7, 2.2, 3.0, 4.0, 6.0)
"""Of a device that many want, in others'."""


def _devices(choice: Choice) -> int:
    return choice.devices


def _size(choice: Choice) -> tuple[int, int]:
    return choice.devices, choice.option.piece


def _rate(picked: Picked) -> float:
    return min(choice.rate for choice in picked.values())


def _usable(problem: Problem, part: Part) -> Part:
    """Without options that the nodes do not hold even alone."""
    usable = tuple(o for o in part.options if fits(problem, [Choice(o, o.least)]))
    return Part(name=part.name, options=usable)


def _fastest(problem: Problem) -> float:
    """No answer is faster than the slowest part would be with all nodes for itself."""
    return min(
        max((o.rate * _most(problem, o) for o in part.options), default=0.0)
        for part in problem.parts
    )


def _most(problem: Problem, option: Option) -> int:
    return min(option.most, problem.capacity(option.kind) // option.devices)


def _at_rate(problem: Problem, least: float, most: float = math.inf) -> Candidates:
    """What each part may choose from to be within the rates, ends included."""
    found = []
    for part in problem.parts:
        choices = (_enough(problem, option, least) for option in part.options)
        found.append((part.name, [c for c in choices if c is not None and c.rate <= most]))
    return found


def _enough(problem: Problem, option: Option, rate: float) -> Choice | None:
    """The fewest replicas that have the rate, if there can be as many."""
    most = _most(problem, option)
    count = max(option.least, min(int(rate / option.rate), most))
    while option.rate * count < rate and count <= most:
        count += 1
    return Choice(option, count) if count <= most else None


def _next(problem: Problem, rate: float) -> float:
    """The least rate above `rate` that some choice has: no other rate in between can be had."""
    found = math.inf
    for part in problem.parts:
        for option in part.options:
            count = max(option.least, int(rate / option.rate))
            while option.rate * count <= rate:
                count += 1
            if count <= _most(problem, option):
                found = min(found, option.rate * count)
    return found


def _bisect(
    problem: Problem, oracle: Oracle, bound: float, tolerance: float
) -> tuple[Picked | None, float]:
    """(the fastest choices, a rate that none exceeds). The two agree unless undecided.

    Tries the bound, then a little less and ever less until there is an answer, then halves.
    """
    found: Picked | None = None
    high, target, back = bound, bound, FIRST_STEP
    try:
        while True:
            picked = oracle(_at_rate(problem, target))
            if picked is not None:
                found = picked
                if target >= bound:
                    return found, _rate(found)
            elif target <= 0.0:
                return None, 0.0
            else:
                high = target
            if found is None:
                back *= 4
                target = high * (1 - back) if back < 1 else 0.0
                continue
            low = _rate(found)
            above = _next(problem, low)
            if above >= high:
                return found, low
            if low >= high * (1 - tolerance):
                return found, high
            middle = (low + high) / 2
            target = middle if above < middle < high else above
    except Undecided:
        return found, high


def _tighten(problem: Problem, search: Search, found: Picked) -> Picked:
    """As fast with the least slack, and the fewest devices that have both."""
    rate = _rate(found)
    tops = sorted({c.rate for _, own in _at_rate(problem, rate) for c in own})
    low, high = 0, len(tops) - 1
    try:
        while low < high:
            middle = (low + high) // 2
            picked = search.packed(_at_rate(problem, rate, tops[middle]))
            if picked is None:
                low = middle + 1
            else:
                found, high = picked, middle
        return search.packed(_at_rate(problem, rate, tops[low])) or found
    except Undecided:
        return found
