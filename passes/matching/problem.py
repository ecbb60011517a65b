"""What is asked of throughput matching, what an answer is, and a check of any answer.

Objective, lexicographic: the step rate G = min over parts of their rates; then the slack, max over
parts of rate - G; then the devices used. Each part runs one option, in one or several replicas.

Law: `check` shares no code with the solvers, and finds a wrong answer whoever made it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

EPSILON = 1e-9
"""Relative: sums and products of rates are compared within this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to run a part.

    kind: of the devices. rate: steps/s of one replica. A replica is `pieces` times `piece` devices;
    those of a piece lie on one node. least, most: replicas.
    """

    name: str
    kind: str
    rate: float
    piece: int = 1
    pieces: int = 1
    least: int = 1
    most: int = 1 << 30

    @property
    def devices(self) -> int:
        """Of one replica."""
        return self.piece * self.pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """`count` nodes with `devices` of a kind each."""

    kind: str
    devices: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Sizes of pieces divide one another in order (1, 2, 4, ...): packing is then a matter of
    counts, see `fits`. ValueError otherwise."""

    parts: tuple[Part, ...]
    nodes: tuple[Nodes, ...]

    def __post_init__(self) -> None:
        sizes = sorted({option.piece for part in self.parts for option in part.options})
        for small, large in pairwise(sizes):
            if large % small:
                raise ValueError(f"pieces of {large} devices do not hold pieces of {small}")

    def capacity(self, kind: str) -> int:
        return sum(nodes.devices * nodes.count for nodes in self.nodes if nodes.kind == kind)

    def room(self, kind: str, size: int) -> int:
        """Pieces of `size` devices that the nodes of a kind hold when nothing else is there."""
        own = (nodes for nodes in self.nodes if nodes.kind == kind)
        return sum(nodes.devices // size * nodes.count for nodes in own)


@dataclass(frozen=True, slots=True)
class Choice:
    option: Option
    replicas: int

    @property
    def rate(self) -> float:
        return self.option.rate * self.replicas

    @property
    def devices(self) -> int:
        return self.option.devices * self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """choices: by part. rate: of the slowest part. bound: no answer is faster than this.

    by: how it was found (`bisection`, `highs`, `cbc`, `greedy`). slack: see the module.
    """

    choices: Mapping[str, Choice]
    rate: float
    slack: float
    devices: int
    bound: float
    by: str

    @property
    def gap(self) -> float:
        """How much faster than this an answer may be at most, as a share of the bound."""
        return 0.0 if self.bound <= self.rate else 1.0 - self.rate / self.bound

    @property
    def slowest(self) -> str:
        return min(self.choices, key=lambda name: self.choices[name].rate)


def fits(problem: Problem, choices: Iterable[Choice]) -> bool:
    """Whether the nodes hold all pieces.

    Since each size divides the next, filling from the largest down wastes only what no piece of
    that size could have used: for each size s, the pieces of at least s, each counted as size / s,
    must be no more than the places of s devices that the nodes have.
    """
    wanted: dict[str, Counter[int]] = {}
    for choice in choices:
        own = wanted.setdefault(choice.option.kind, Counter())
        own[choice.option.piece] += choice.option.pieces * choice.replicas
    return all(
        sum(count * size // small for size, count in own.items() if size >= small)
        <= problem.room(kind, small)
        for kind, own in wanted.items()
        for small in own
    )


def efficient(part: Part) -> Part:
    """The part without options that another one does as fast with no more devices.

    One stays out when one replica of another, of the same kind and with no larger pieces, or
    several of them, are as fast with no more devices, and may be repeated as often. Of equal ones
    the first stays. Without this rule least slack would prefer slow ways that waste devices.
    """
    kept: list[Option] = []
    ordered = sorted(
        enumerate(part.options), key=lambda it: (it[1].devices, it[1].piece, -it[1].rate, it[0])
    )
    for _, option in ordered:
        if not any(_replaces(other, option) for other in kept):
            kept.append(option)
    return Part(name=part.name, options=tuple(kept))


def _replaces(other: Option, option: Option) -> bool:
    """Whether some replicas of `other` do what any replicas of `option` do, no worse."""
    if other.kind != option.kind or other.piece > option.piece or other.least > 1:
        return False
    times = option.devices // other.devices
    return (
        times >= 1
        and other.rate * times >= option.rate
        and other.most >= min(option.most, 1 << 30) * times
    )


def check(problem: Problem, solution: Solution) -> list[str]:
    """What is wrong with an answer; empty when nothing is."""
    wrong = []
    for part in problem.parts:
        choice = solution.choices.get(part.name)
        if choice is None or choice.option not in part.options:
            wrong.append(f"{part.name} runs no option of its own")
        elif not choice.option.least <= choice.replicas <= choice.option.most:
            wrong.append(f"{part.name} has {choice.replicas} replicas")
        elif choice.rate < solution.rate * (1 - EPSILON):
            wrong.append(f"{part.name} is slower than the {solution.rate:g} steps/s stated")
        elif choice.rate > (solution.rate + solution.slack) * (1 + EPSILON):
            wrong.append(f"{part.name} has more slack than the {solution.slack:g} steps/s stated")
    used = sum(choice.devices for choice in solution.choices.values())
    if used != solution.devices:
        wrong.append(f"{used} devices are used, {solution.devices} stated")
    wrong += overfull(problem, solution.choices.values())
    if solution.rate > solution.bound * (1 + EPSILON):
        wrong.append(f"faster than its own bound of {solution.bound:g} steps/s")
    return wrong


def overfull(problem: Problem, choices: Iterable[Choice]) -> list[str]:
    """Seats the pieces one by one, largest first, where they leave least room."""
    free: dict[str, list[int]] = {}
    for nodes in problem.nodes:
        free.setdefault(nodes.kind, []).extend([nodes.devices] * nodes.count)
    pieces = sorted(
        ((c.option.piece, c.option.kind) for c in choices for _ in range(_pieces(c))), reverse=True
    )
    for size, kind in pieces:
        seat = _tightest(free.get(kind, ()), size)
        if seat < 0:
            return [f"no node of {kind!r} has room for a piece of {size} devices"]
        free[kind][seat] -= size
    return []


def _pieces(choice: Choice) -> int:
    return choice.option.pieces * choice.replicas


def _tightest(free: Sequence[int], size: int) -> int:
    """The fullest node with room for `size`, or -1."""
    found = [(room, i) for i, room in enumerate(free) if room >= size]
    return min(found)[1] if found else -1
