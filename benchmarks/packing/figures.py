"""What is measured: each function takes a mix and a seed and returns named figures."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.packing.mixes import BACKBONE, CAP, Ints, Mix, draw
from flowgraph.runtime.policy import (
    Deal,
    OnlinePacker,
    Packs,
    Remainder,
    WindowPacker,
    deal,
    deal_packs,
    heaviest_bound,
    pack_lengths,
    spread,
)

WINDOW = 1000
STREAM = 20_000  # samples, for the figures over windows
STEP = 4096
RANKS = 64
MILLION = 1_000_000
REPEATS = 7

Figures = dict[str, float]
Floats = NDArray[np.float64]
T = TypeVar("T")


def best_ms(call: Callable[[], T], repeats: int) -> tuple[T, float]:
    """The result and the best of several times, in ms of this process's CPU time."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        result = call()
        times.append(time.process_time() - begin)
    return result, min(times) * 1e3


def windows(mix: Mix) -> Iterator[Ints]:
    """The mix's lengths, WINDOW at a time."""
    for begin in range(0, mix.lengths.size, WINDOW):
        yield mix.lengths[begin : begin + WINDOW]


def flushed_windows(name: str, seed: int, repeats: int = REPEATS) -> Figures:
    """Packs flushed at each window's end."""
    mix = draw(name, STREAM, seed)
    plans = [pack_lengths(window, cap=CAP) for window in windows(mix)]
    bound = sum(-(-int(plan.lengths.sum()) // CAP) for plan in plans)
    first = next(windows(mix))
    return {
        "fill": _fill(plans),
        "fill if every pack but one were full": mix.lengths.sum() / (bound * CAP),
        "ms per 1000": best_ms(lambda: pack_lengths(first, cap=CAP), repeats)[1],
        "over-long, dropped": mix.dropped,
    }


def carried_windows(name: str, seed: int, repeats: int = REPEATS) -> Figures:
    """Unfinished packs carried over, none older than 5 windows; the last flush included."""
    mix = draw(name, STREAM, seed)

    def run() -> list[Packs]:
        packer = WindowPacker(cap=CAP, age_limit=5)
        return [*(packer.push(window) for window in windows(mix)), packer.flush()]

    plans, ms = best_ms(run, repeats)
    return {"fill": _fill(plans), "ms per 1000": ms * WINDOW / STREAM}


def online(name: str, seed: int, repeats: int = REPEATS) -> Figures:
    """Online best-fit with 64 and 256 packs open; the last flush included."""
    mix = draw(name, STREAM, seed)
    figures: Figures = {}
    for size in (64, 256):
        plans, ms = best_ms(partial(_online, mix, size), repeats)
        figures[f"fill, {size} open"] = _fill(plans)
        figures[f"ms per 1000, {size} open"] = ms * WINDOW / STREAM
    return figures


def _online(mix: Mix, size: int) -> list[Packs]:
    packer = OnlinePacker(cap=CAP, open_packs=size)
    return [packer.push(mix.lengths), packer.flush()]


def dealt_samples(name: str, seed: int, repeats: int = REPEATS) -> Figures:
    """Single samples to ranks, equal counts."""
    mix = draw(name, STEP, seed)
    cost = BACKBONE.of(mix.lengths)
    one, ms = best_ms(lambda: deal(cost, RANKS), repeats)
    two, ms_two = best_ms(lambda: deal(cost, RANKS, second=mix.encoder), repeats)
    return {
        "max/mean": float(one.imbalance[0]),
        "ms": ms,
        "both costs: backbone": float(two.imbalance[0]),
        "both costs: encoder": float(two.imbalance[1]),
        "both costs: ms": ms_two,
    }


def dealt_packs(name: str, seed: int, repeats: int = REPEATS) -> Figures:
    """Whole packs to ranks, equal counts, both costs: the remainder carried, spread, or filled."""
    mix = draw(name, STEP, seed)
    packs = pack_lengths(mix.lengths, cap=CAP, second=mix.visual)
    figures: Figures = {"packs a rank": len(packs) / RANKS}
    for way in ("carry", "spread", "filler"):
        even, even_ms = best_ms(partial(spread, packs, RANKS), repeats)
        plan = even if way == "spread" else packs
        backbone, encoder = BACKBONE.of_packs(plan), _encoder(plan, mix)
        run = partial(_deal_both, backbone, encoder, carry=way == "carry")
        dealt, ms = best_ms(run, repeats)
        figures[f"{way}: backbone"] = float(dealt.imbalance[0])
        figures[f"{way}: encoder"] = float(dealt.imbalance[1])
        figures[f"{way}: ms"] = ms
        if way == "spread":
            figures["spread: ms for the spreading"] = even_ms
            figures["spread: fill"] = plan.fill
        if way == "carry":
            gone = len(packs) - dealt.carried.size
            for kind, cost in (("backbone", backbone), ("encoder", encoder)):
                figures[f"carry: {kind}, bound by the heaviest"] = heaviest_bound(
                    cost[:gone], RANKS
                )
    return figures


def _deal_both(backbone: Floats, encoder: Floats, *, carry: bool) -> Deal:
    remainder: Remainder = "carry" if carry else "filler"
    return deal_packs(backbone, RANKS, second=encoder, remainder=remainder)


def million(name: str, seed: int, repeats: int = 1) -> Figures:
    """A million lengths through windows with carry-over, then all packs to the ranks."""
    mix = draw(name, MILLION, seed)

    def run() -> tuple[list[Packs], Deal]:
        packer = WindowPacker(cap=CAP)
        plans = [*(packer.push(window) for window in windows(mix)), packer.flush()]
        return plans, deal_packs(np.concatenate([BACKBONE.of_packs(p) for p in plans]), RANKS)

    (plans, dealt), ms = best_ms(run, repeats)
    return {"seconds": ms / 1e3, "fill": _fill(plans), "max/mean": float(dealt.imbalance[0])}


def _encoder(packs: Packs, mix: Mix) -> Floats:
    pack = np.repeat(np.arange(len(packs)), np.diff(packs.boundaries))
    loads: Floats = np.zeros(len(packs))
    np.add.at(loads, pack, mix.encoder[packs.order])
    return loads


def _fill(plans: list[Packs]) -> float:
    tokens = sum(int(plan.lengths.sum()) for plan in plans)
    return tokens / (sum(len(plan) for plan in plans) * CAP)
