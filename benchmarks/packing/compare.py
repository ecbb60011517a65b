"""`python -m benchmarks.packing.compare --wheels DIR`: the same samples through others' code.

DIR holds wheels (trl, verl, axolotl, nemo_automodel), fetched with `pip download --no-deps`; only
the functions named below are taken out of them and run, since the packages themselves want GPUs'
worth of dependencies. TRL's function needs pyarrow, axolotl's numba. A wheel or a dependency that
is not there leaves its row out, and says so.
"""

import argparse
import ast
import heapq
import importlib
import logging
import time
import zipfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.packing.figures import RANKS, REPEATS, STEP, WINDOW, best_ms
from benchmarks.packing.mixes import BACKBONE, CAP, NAMES, Ints, draw
from flowgraph.runtime.policy import deal, pack_lengths

STREAM = 5 * WINDOW
SEEDS = range(5)
Packer = Callable[[Ints], list[int]]  # lengths of one window -> tokens in each pack
Dealer = Callable[[list[int]], list[list[int]]]  # costs -> each rank's items

FILES = {
    "trl": "trl/data_utils.py",
    "verl": "verl/utils/seqlen_balancing.py",
    "axolotl": "axolotl/utils/samplers/multipack.py",
    "nemo_automodel": "nemo_automodel/components/datasets/llm/neat_packing.py",
}


def taken(wheels: Path, project: str, names: set[str], given: dict[str, Any]) -> dict[str, Any]:
    """The definitions `names` of one file of a wheel, run with the globals `given`."""
    (wheel,) = wheels.glob(f"{project}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(FILES[project]))
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names
    ]
    space = dict(given)
    exec(compile(tree, f"{wheel.name}:{FILES[project]}", "exec"), space)
    return space


def ours(lengths: Ints) -> list[int]:
    """This project's packs."""
    tokens: list[int] = pack_lengths(lengths, cap=CAP).tokens.tolist()
    return tokens


def trl(wheels: Path) -> Packer:
    """`pack_dataset(strategy="bfd")` is this function over a table; its time includes the rows."""
    arrow = importlib.import_module("pyarrow")
    compute = importlib.import_module("pyarrow.compute")
    importlib.import_module("pyarrow.types")
    names = {"_SegmentTree", "_pack_bfd", "_check_if_columns_can_be_packed"}
    given = {
        "pyarrow": arrow,
        "pa": arrow,
        "pc": compute,
        "np": np,
        "defaultdict": defaultdict,
        "deque": deque,
    }
    pack = taken(wheels, "trl", names, {**given, "Literal": Literal})["_pack_bfd"]

    def packer(lengths: Ints) -> list[int]:
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        rows = arrow.ListArray.from_arrays(offsets, arrow.array(np.zeros(offsets[-1], np.int8)))
        packed = pack(arrow.table({"input_ids": rows}), CAP)
        tokens: list[int] = compute.list_value_length(packed["input_ids"]).to_pylist()
        return tokens

    return packer


def axolotl(wheels: Path) -> Packer:
    """`MultipackBatchSampler`'s first-fit over a group in arrival order, compiled by numba."""
    numba = importlib.import_module("numba")
    pack = taken(wheels, "axolotl", {"pack_group"}, {"np": np, "numba": numba})["pack_group"]

    def packer(lengths: Ints) -> list[int]:
        bins = pack(lengths, 0, CAP, lengths.size, lengths.size, True)
        return [int(lengths[list(members)].sum()) for members in bins]

    return packer


def nemo_automodel(wheels: Path) -> Packer:
    """`greedy_knapsack`: longest first into the emptiest pack."""
    given = {"heapq": heapq, "logger": logging.getLogger("quiet"), "time": time}
    pack = taken(wheels, "nemo_automodel", {"greedy_knapsack"}, given)["greedy_knapsack"]

    def packer(lengths: Ints) -> list[int]:
        return [int(lengths[members].sum()) for members in pack(lengths.tolist(), CAP)]

    return packer


def verl(wheels: Path) -> Dealer:
    """`karmarkar_karp(equal_size=True)`, behind `get_seqlen_balanced_partitions`."""
    given = {"heapq": heapq}
    partition = taken(wheels, "verl", {"karmarkar_karp"}, given)["karmarkar_karp"]
    return lambda costs: partition(costs, RANKS, equal_size=True)


def found(wheels: Path) -> Iterator[tuple[str, Packer]]:
    """Ours and every other packer that can be run here."""
    yield "ours", ours
    for make in (trl, axolotl, nemo_automodel):
        try:
            yield make.__name__, make(wheels)
        except (ValueError, ImportError) as absent:
            print(f"{make.__name__} left out: {absent}\n")


def compare_packers(wheels: Path) -> None:
    """Fill over windows of 1000, each flushed, and the best time of a window."""
    print(f"| packer, windows of {WINDOW} | {' | '.join(f'{m}: fill | ms' for m in NAMES)} |")
    print("|---" * (1 + 2 * len(NAMES)) + "|")
    for name, packer in found(wheels):
        cells = []
        for mix in NAMES:
            fills, times = [], []
            for seed in SEEDS:
                parts = np.split(draw(mix, STREAM, seed).lengths, STREAM // WINDOW)
                tokens = [count for part in parts for count in packer(part)]
                fills.append(sum(tokens) / (len(tokens) * CAP))
                if max(tokens) > CAP or sum(tokens) != sum(int(part.sum()) for part in parts):
                    raise RuntimeError(f"{name} lost tokens or broke the cap")
                times.append(best_ms(partial(packer, parts[0]), REPEATS)[1])
            cells.append(f"{np.mean(fills):.4f} | {np.mean(times):.2f}")
        print(f"| {name} | {' | '.join(cells)} |")


def compare_dealers(wheels: Path) -> None:
    """Largest over mean load of 4096 samples on 64 ranks, equal counts, and the best time."""

    def our_deal(costs: list[int]) -> list[list[int]]:
        return [row.tolist() for row in deal(costs, RANKS)]

    dealers: dict[str, Dealer] = {"ours": our_deal}
    try:
        dealers["verl"] = verl(wheels)
    except ValueError as absent:
        print(f"verl left out: {absent}\n")
    print(f"\n| dealer, {STEP} to {RANKS} | {' | '.join(f'{m}: max/mean | ms' for m in NAMES)} |")
    print("|---" * (1 + 2 * len(NAMES)) + "|")
    for name, dealer in dealers.items():
        cells = []
        for mix in NAMES:
            worst, times = [], []
            for seed in SEEDS:
                # verl's wants integers, ours takes either.
                costs = (BACKBONE.of(draw(mix, STEP, seed).lengths) / 1e9).astype(np.int64)
                rows, ms = best_ms(partial(dealer, costs.tolist()), 3)
                loads = [int(costs[row].sum()) for row in rows]
                worst.append(max(loads) / (sum(loads) / RANKS))
                times.append(ms)
            cells.append(f"{np.mean(worst):.5f} | {np.mean(times):.1f}")
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing.compare")
    parser.add_argument("--wheels", type=Path, required=True, help="folder of downloaded wheels")
    wheels: Path = parser.parse_args().wheels
    print(", ".join(sorted(wheel.name.split("-py3")[0] for wheel in wheels.glob("*.whl"))), "\n")
    compare_packers(wheels)
    compare_dealers(wheels)


if __name__ == "__main__":
    main()
