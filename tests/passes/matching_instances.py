"""Generated problems of throughput matching, and their best answers by trying everything."""

import itertools
import random
from collections.abc import Iterator, Sequence

from flowgraph.passes.matching.problem import Choice, Nodes, Option, Part, Problem, efficient

KINDS = ("a", "b")


def instance(seed: int) -> Problem:
    """1 to 3 parts with 2 to 5 options each, on up to 8 devices in uneven nodes of 1 or 2 kinds."""
    draw = random.Random(seed)
    kinds = KINDS[: draw.randint(1, 2)]
    nodes: list[Nodes] = []
    left = draw.randint(4, 8)
    while left:
        size = draw.randint(1, left)
        nodes.append(Nodes(kind=draw.choice(kinds), devices=size))
        left -= size
    parts = tuple(
        Part(
            name=f"p{i}",
            options=tuple(_option(draw, kinds, j) for j in range(draw.randint(2, 5))),
        )
        for i in range(draw.randint(1, 3))
    )
    return Problem(parts=parts, nodes=tuple(nodes))


def _option(draw: random.Random, kinds: Sequence[str], index: int) -> Option:
    least = draw.choice((1, 1, 1, 1, 1, 2))
    # Few distinct rates: ties are what solvers get wrong.
    return Option(
        name=f"o{index}",
        kind=draw.choice(kinds),
        rate=draw.choice((0.5, 1.0, 1.5, 2.0, 3.0, 0.1, 0.7)),
        piece=draw.choice((1, 1, 1, 2, 2, 4)),
        pieces=draw.choice((1, 1, 1, 2, 3)),
        least=least,
        most=least + draw.choice((0, 1, 7)),
    )


def brute_force(problem: Problem) -> tuple[float, float, int] | None:
    """(rate, slack, devices) of the best answer: all options, all counts, all packings."""
    best: tuple[float, float, int] | None = None
    for choices in itertools.product(*(_choices(problem, part) for part in problem.parts)):
        devices = sum(choice.devices for choice in choices)
        rates = [choice.option.rate * choice.replicas for choice in choices]
        score = (min(rates), max(rates) - min(rates), devices)
        better = best is None or (-score[0], *score[1:]) < (-best[0], *best[1:])
        if better and packs(problem, choices):
            best = score
    return best


def _choices(problem: Problem, part: Part) -> list[Choice]:
    total = sum(nodes.devices * nodes.count for nodes in problem.nodes)
    return [
        Choice(option, count)
        for option in part.options
        for count in range(option.least, min(option.most, total // option.devices) + 1)
    ]


def packs(problem: Problem, choices: Sequence[Choice]) -> bool:
    """Whether some seating of all pieces on the nodes exists: tries all."""
    pieces = [
        (choice.option.kind, choice.option.piece)
        for choice in choices
        for _ in range(choice.option.pieces * choice.replicas)
    ]
    free = [(n.kind, n.devices) for n in problem.nodes for _ in range(n.count)]
    if sum(size for _, size in pieces) > sum(size for _, size in free):
        return False
    return _seat(sorted(pieces, key=lambda piece: -piece[1]), free)


def _seat(pieces: list[tuple[str, int]], free: list[tuple[str, int]]) -> bool:
    if not pieces:
        return True
    (kind, size), rest = pieces[0], pieces[1:]
    for i in dict.fromkeys(range(len(free))):
        if free[i][0] == kind and free[i][1] >= size:
            less = [*free[:i], (kind, free[i][1] - size), *free[i + 1 :]]
            if _seat(rest, less):
                return True
    return False


def pruned(problem: Problem) -> Problem:
    """Only the options that are no waste, among which slack and devices are compared."""
    return Problem(parts=tuple(map(efficient, problem.parts)), nodes=problem.nodes)


def instances(count: int) -> Iterator[tuple[int, Problem]]:
    return ((seed, instance(seed)) for seed in range(count))


def brute_force_mixed(
    problem: Problem, whole: Sequence[str] = ()
) -> tuple[float, float, int] | None:
    """As `brute_force`, where parts that are not `whole` may run several options at once."""
    total = sum(nodes.devices * nodes.count for nodes in problem.nodes)
    best: tuple[float, float, int] | None = None

    def extend(index: int, chosen: list[Choice], rates: list[float], left: int) -> None:
        nonlocal best
        if best is not None and rates and round(min(rates), 9) < best[0]:
            return
        if index == len(problem.parts):
            # Rounded: sums of the same rates in another order are the same rate.
            rate, slack = round(min(rates), 9), round(max(rates) - min(rates), 9)
            score = (rate, slack, total - left)
            better = best is None or (-score[0], *score[1:]) < (-best[0], *best[1:])
            if better and packs(problem, chosen):
                best = score
            return
        part = problem.parts[index]
        for own in _mixtures(part, 0, left, part.name in whole):
            used = sum(choice.devices for choice in own)
            extend(index + 1, [*chosen, *own], [*rates, sum(c.rate for c in own)], left - used)

    extend(0, [], [], total)
    return best


def _mixtures(part: Part, first: int, left: int, whole: bool) -> Iterator[list[Choice]]:
    """Non-empty choices of options from the `first` on, within `left` devices."""
    for j in range(first, len(part.options)):
        option = part.options[j]
        for count in range(option.least, min(option.most, left // option.devices) + 1):
            choice = Choice(option, count)
            yield [choice]
            if not whole:
                rest = left - choice.devices
                yield from ([choice, *more] for more in _mixtures(part, j + 1, rest, whole))
