"""`python -m tests.runtime.simulate --replay NUMBER`, or `--soak SECONDS`: simulated schedules."""

import argparse
import sys
import time

from tests.runtime.simulate.schedules import run_schedule, schedule_of


def main() -> int:
    """1 when a schedule broke a law; the first one is told with its command."""
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.simulate", description=__doc__)
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="run this schedule, tell all")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="run for that long")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="where soak begins")
    options = parser.parse_args()
    if options.replay is not None:
        schedule = schedule_of(options.replay)
        how = f"{schedule.steps} steps, exact {schedule.exact}, source {schedule.source_size}"
        print(f"{schedule.plan.graph.name}, {how}")
        for fault in schedule.faults.faults:
            print(fault)
        result = run_schedule(schedule)
        print(
            f"{result.outcome} {result.cause}: {result.events} events, {result.restarts} restarts"
        )
        return 0
    return soak(options.first, options.soak or 60.0)


def soak(first: int, seconds: float) -> int:
    """Schedules from `first` on until the time is over."""
    began = time.monotonic()
    number = first
    while time.monotonic() - began < seconds:
        try:
            run_schedule(schedule_of(number))
        except Exception as error:
            print(f"schedule {number}: {type(error).__name__}: {error}", file=sys.stderr)
            print(f"replay: python -m tests.runtime.simulate --replay {number}", file=sys.stderr)
            return 1
        number += 1
    print(f"{number - first} schedules kept all laws, {first} to {number - 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
