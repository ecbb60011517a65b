"""When a step is done, given who waits for whom: the one closed form of a step's time.

Work flows from task to task in shares: a gang begins when a micro-batch is whole, and is done no
sooner than it has worked on the last one. For each work, with `seconds` of its own and a `share` of
its records at once, reading of works with shares of theirs,

    s     = the larger of the two shares
    start = latest over what it reads of  start_r + s * (end_r - start_r)
    end   = latest of  start + seconds,  and over what it reads of  end_r + s * seconds

A work behind another one, on the same devices, starts when that has ended. Waiting for messages,
and uneven records, come on top: the simulator has these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A task's work in a step, on its group. seconds: of the whole step, by all processes together.

    share: of a step's records, what is taken and handed on at once; 1 for all. reads: works whose
    records it takes. behind: works that must have ended, because they use the same devices.
    """

    name: str
    group: str
    seconds: float
    share: float = 1.0
    reads: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """seconds: when all works have ended. path: by work, in order, the seconds that each one adds
    to the last one's end; they sum to `seconds`."""

    seconds: float
    path: tuple[tuple[str, float], ...] = ()


def step_chain(works: Iterable[Work]) -> Chain:
    """The last end, and the works that it hangs on. Raises ValueError (graphlib.CycleError) when
    works wait for one another in a circle; those that are read and not there are done at 0."""
    known = {work.name: work for work in works}
    order = TopologicalSorter(
        {name: [w for w in (*own.reads, *own.behind) if w in known] for name, own in known.items()}
    ).static_order()
    start: dict[str, float] = {}
    end: dict[str, float] = {}
    cause: dict[str, str] = {}
    for name in order:
        start[name], end[name], cause[name] = _timed(known, known[name], start, end)
    if not end:
        return Chain(0.0)
    last = max(end, key=lambda name: end[name])
    path: list[tuple[str, float]] = []
    name = last
    while name:
        before = cause[name]
        path.append((name, end[name] - (end[before] if before else 0.0)))
        name = before
    return Chain(end[last], tuple(reversed(path)))


def _timed(
    known: Mapping[str, Work],
    work: Work,
    start: Mapping[str, float],
    end: Mapping[str, float],
) -> tuple[float, float, str]:
    """(start, end, the work that decided: whose records or devices were waited for longest)."""
    reads = [(name, max(work.share, known[name].share)) for name in work.reads if name in end]
    begins = [(0.0, "")]
    begins += [(end[name], name) for name in work.behind if name in end]
    begins += [(start[name] + share * (end[name] - start[name]), name) for name, share in reads]
    begin, first = max(begins, key=lambda it: it[0])
    ends = [(begin + work.seconds, first)]
    ends += [(end[name] + share * work.seconds, name) for name, share in reads]
    done, cause = max(ends, key=lambda it: it[0])
    return begin, done, cause


def turns_end(turns: Iterable[tuple[float, float]]) -> float:
    """When devices that are used in turn are free: (ready, seconds) of each user, in order."""
    now = 0.0
    for ready, seconds in turns:
        now = max(now, ready) + seconds
    return now
