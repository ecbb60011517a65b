"""`python -m benchmarks`: all benchmarks of parts in turn, each in a process of its own.

A part's own options: `python -m benchmarks.packing --help`, and so on. Exit status 1 when one of
them missed a limit that it states. How well and how fast the examples learn is
`python -m benchmarks.learn`.
"""

import subprocess
import sys

PARTS = ("packing", "kernels", "engine")


def main() -> int:
    """Run them; the exit status."""
    failed = []
    for part in PARTS:
        print(f"\n== python -m benchmarks.{part}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{part}"], check=False).returncode:
            failed.append(part)
    if failed:
        print(f"\nmissed a limit, or failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
