"""`python -m benchmarks`: all benchmarks of parts in turn, each in a process of its own.

Packing is averaged over fewer seeds than on its page. A part's own options: `python -m
benchmarks.packing --help`, and so on. Exit status 1 when one of them missed a limit that it states.
Whole runs are measured elsewhere: what the examples learn by `python -m benchmarks.learn`, how well
runs are predicted by `python -m benchmarks.simulate`.
"""

import shlex
import subprocess
import sys

PARTS = (["packing", "--seeds", "2"], ["kernels"], ["engine"], ["compile"])


def main() -> int:
    """Run them; the exit status."""
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
