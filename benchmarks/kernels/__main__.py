"""`python -m benchmarks.kernels [--device cpu|cuda] [--only pack ...]`: the table of figures.

Exit status 1 when a stated limit is missed. For TRL's packing beside ours set TRL_PYTHON to the
Python of an environment that has `trl` and `datasets`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import torch

from benchmarks.kernels.figure import HEADER, Figure

KERNELS = ("pack", "rows", "merge", "logprobs", "segments", "flat")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ... (default: cpu)")
    parser.add_argument("--only", nargs="+", choices=KERNELS, default=KERNELS)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch (default: 1)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    where = _name(device)
    print(f"torch {torch.__version__}, {where}, {options.threads} CPU threads\n\n{HEADER}")
    missed = False
    for name in options.only:
        figures: list[Figure] = importlib.import_module(f"benchmarks.kernels.bench_{name}").measure(
            device
        )
        for figure in figures:
            print(figure.line(), flush=True)
            missed |= figure.within is not None and figure.line().endswith("MISSED |")
    return 1 if missed else 0


def _name(device: torch.device) -> str:
    """The device's name, as its vendor's module in torch gives it."""
    module = getattr(torch, device.type, None)
    name: str = getattr(module, "get_device_name", lambda _: device.type)(device)
    return name


if __name__ == "__main__":
    sys.exit(main())
