"""`python -m benchmarks.packing`: the table of docs/packing.md, measured on this machine.

Fill and balance do not depend on the machine; times are the best of several runs on one core.
"""

import argparse
import os
import platform

import numpy as np

from benchmarks.packing.figures import REPEATS
from benchmarks.packing.mixes import NAMES
from benchmarks.packing.targets import SECTIONS, missed, target


def main() -> None:
    """Print every figure, mean over the seeds, beside its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds to average over")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs, the best is shown")
    options = parser.parse_args()
    seeds, repeats = int(options.seeds), int(options.repeats)
    print(f"{_processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, ", end="")
    print(f"numpy {np.__version__}; mean over {seeds} seeds\n")
    for title, measure in SECTIONS.items():
        print(f"**{title}**\n\n| figure | {' | '.join(NAMES)} | target |\n|---|---|---|---|---|")
        runs = {mix: [measure(mix, seed, repeats) for seed in range(seeds)] for mix in NAMES}
        for figure in runs[NAMES[0]][0]:
            values = {mix: float(np.mean([run[figure] for run in runs[mix]])) for mix in NAMES}
            cells = [_cell(title, figure, mix, value) for mix, value in values.items()]
            print(f"| {figure} | {' | '.join(cells)} | {target(title, figure)} |")
        print()


def _cell(title: str, figure: str, mix: str, value: float) -> str:
    digits = f"{value:.4f}" if value < 2 else f"{value:.1f}"
    return f"{digits} (missed)" if missed(title, figure, mix, value) else digits


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
