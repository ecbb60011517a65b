"""`python -m benchmarks`: all benchmarks of parts in turn, each in a process of its own.

Each is measured over fewer rounds than on its page (docs/figures.md, docs/packing.md, ...). A
part's own options: `python -m benchmarks.packing --help`, and so on. Exit status 1 when one of them
missed a limit that it states. The machine's own limits are printed first. What the examples learn
is measured elsewhere: `python -m benchmarks.learn`.
"""

import shlex
import subprocess
import sys

from benchmarks.machine import limits

PARTS = (
    ["packing", "--seeds", "2"],
    ["kernels"],
    ["engine"],
    ["compile"],
    ["orchestrator", "--rounds", "2"],
    ["orchestrator.beats"],
    ["orchestrator.journal"],
    ["transport", "--rounds", "7"],
    ["overhead", "--rounds", "2"],
    ["recovery", "--rounds", "1"],
    ["simulate", "--rounds", "2"],
)


def main() -> int:
    """Run them; the exit status."""
    print(limits(), flush=True)
    failed = []
    for part, *options in PARTS:
        command = [sys.executable, "-m", f"benchmarks.{part}", *options]
        print(f"\n== python {shlex.join(command[1:])}\n", flush=True)
        if subprocess.run(command, check=False).returncode:
            failed.append(part)
    if failed:
        print(f"\nmissed a limit, or failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
