"""Throughput-matching problems of the size of a large cluster: 16 modules, 1024 devices."""

import random

from flowgraph.passes.matching.problem import Nodes, Option, Part, Problem

MODULES = 16
DEVICES = 1024


def counted(seed: int, layouts: int) -> Problem:
    """A count of devices is the only constraint."""
    return Problem(_parts(seed, layouts, ("a",), whole=False), (Nodes(kind="a", devices=DEVICES),))


def packed(seed: int, layouts: int) -> Problem:
    """Two kinds of devices, 512 each, on nodes of 16, 12 and 6; pieces lie within a node."""
    parts = _parts(seed, layouts // 2, ("a", "b"), whole=True)
    sizes = ((16, 17), (12, 12), (6, 16))
    nodes = tuple(Nodes(kind=k, devices=n, count=many) for k in ("a", "b") for n, many in sizes)
    return Problem(parts, nodes)


def _parts(seed: int, layouts: int, kinds: tuple[str, ...], *, whole: bool) -> tuple[Part, ...]:
    """Rates as rooflines give them: nearly proportional, less so the more a layout splits."""
    draw = random.Random(seed)
    speed = dict(zip(kinds, (1.0, 0.37), strict=False))
    parts = []
    for m in range(MODULES):
        size = draw.lognormvariate(0, 1.5)
        options = []
        for i in range(layouts):
            tp, pp = draw.choice((1, 2, 4, 8, 16)), draw.choice((1, 1, 2, 3, 4, 5, 8))
            worth = draw.uniform(0.5, 1.0) * tp**-0.15 * pp**-0.05
            options += [
                Option(
                    name=f"{i}",
                    kind=kind,
                    rate=size * tp * pp * worth * speed[kind],
                    piece=tp if whole else 1,
                    pieces=pp if whole else tp * pp,
                    most=draw.choice((4, 16, 64, 256)),
                )
                for kind in kinds
            ]
        parts.append(Part(name=f"m{m}", options=tuple(options)))
    return tuple(parts)
