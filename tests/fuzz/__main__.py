"""`python -m tests.fuzz --count 100000`: read spoiled plans and texts; exit 1 at the first fault.

`--seed S --count 1` reads one mutant again.
"""

import argparse
import resource
import signal
import sys
import traceback

MEMORY = 256 << 20
"""Bytes that may be taken beyond what the start took: a promise of more must not be believed."""


def address_space() -> int:
    """Bytes of this process's address space, as the kernel counts them for its limit."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _hang(_signal: int, _frame: object) -> None:
    raise TimeoutError("reading one mutant has no end")


def main() -> None:
    """Print what became of the mutants, by kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="mutants to read")
    parser.add_argument("--seed", type=int, default=0, help="number of the first one")
    options = parser.parse_args()
    from tests.fuzz.trial import SLOWEST, Corpus, trial

    corpus = Corpus.small()
    limit = address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGVTALRM, _hang)
    for seed in range(options.seed, options.seed + options.count):
        signal.setitimer(signal.ITIMER_VIRTUAL, 4 * SLOWEST)
        try:
            trial(corpus, seed)
        except BaseException:
            traceback.print_exc()
            print(f"again: python -m tests.fuzz --seed {seed} --count 1", file=sys.stderr)
            raise SystemExit(1) from None
    for outcome, count in sorted(corpus.outcomes.items()):
        print(f"{count:8} {outcome}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{options.count:8} mutants, none misread; {peak:.0f} MiB at most")


if __name__ == "__main__":
    main()
