"""`python -m benchmarks.compile`: the compiler's figures, measured on this machine."""

import argparse
import os
import platform
import tempfile

from benchmarks.compile.figures import (
    against_brute_force,
    compile_times,
    inspect_times,
    large_solves,
)


def main() -> None:
    """Print the table; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile", description=__doc__)
    parser.add_argument("--instances", type=int, default=500, help="for brute force")
    parser.add_argument("--seeds", type=int, default=5, help="large problems of each kind")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, one used; seconds are of ")
    print("the processor, best of 3 but for solves, of which the worst is shown\n")
    print("| what | measured | target | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            *compile_times(),
            *inspect_times(folder),
            *against_brute_force(int(options.instances)),
            *large_solves(int(options.seeds)),
        ]
    for row in rows:
        print(row.line())
    if any(row.met is False for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
