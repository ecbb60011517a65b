"""Which layouts a part may have on a kind of device: those that its sizes can be divided into."""

import math
from collections.abc import Iterator

from flowgraph.ir.plan import Layout
from flowgraph.passes.layout_costs import Described, GangWork

LONG = 4096
"""Tokens of a sequence from which splitting it over ranks (cp) is tried."""


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [1 << i for i in range(max(1, most).bit_length())]


def tensor_ways(model: Described, node: int) -> list[int]:
    """tp: within a node, and each rank with whole heads."""
    heads = max(1, model.heads)
    kv = max(1, model.kv_heads)
    return [tp for tp in powers(node) if heads % tp == 0 and (kv % tp == 0 or tp % kv == 0)]


def pipeline_ways(model: Described, most: int) -> list[int]:
    """pp: each rank with as many layers."""
    layers = model.shape.layers
    return [pp for pp in range(1, min(layers, most) + 1) if layers % pp == 0]


def shares(units: int, most: int) -> list[int]:
    """dp: the fewest ranks for each largest share that a rank can have of the units."""
    found = {math.ceil(units / dp): dp for dp in range(min(units, most), 0, -1)}
    return sorted(found.values())


def instance_counts(most: int) -> list[int]:
    """Counts of engines that are tried: all up to 32, then in steps of about 3 %."""
    found, count = [], 1
    while count <= most:
        found.append(count)
        count = count + 1 if count < 32 else math.ceil(count * 1.03)
    return found


def gang_layouts(
    work: GangWork, devices: int, node: int, *, every: bool = False
) -> Iterator[Layout]:
    """All of at most `devices` ranks, without recomputing and with it where something is kept.

    every: also those dp that leave ranks without a share, which nobody chooses but a pin may.
    """
    model = work.model
    splittable = model.length >= LONG and model.heads > 0
    for tp in tensor_ways(model, min(node, devices)):
        for pp in pipeline_ways(model, devices // tp):
            for cp in powers(min(16, devices // (tp * pp))) if splittable else [1]:
                most = devices // (tp * pp * cp)
                for dp in range(1, most + 1) if every else shares(work.units, most):
                    for again in (False, True) if work.trained else (False,):
                        yield Layout(dp=dp, tp=tp, pp=pp, cp=cp, recompute=again)


def named(layout: Layout) -> str:
    """`dp4 x tp2`; the ways that are 1 are left out."""
    ways = (("dp", layout.dp), ("tp", layout.tp), ("pp", layout.pp), ("cp", layout.cp))
    text = " x ".join(f"{name}{count}" for name, count in ways if count > 1) or "one device"
    return f"{text}, recomputing" if layout.recompute else text
