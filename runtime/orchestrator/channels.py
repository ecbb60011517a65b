"""Channels of a step: opened with it, ended by those who fill them, closed by those who read them.

Laws: a channel ends when its producer is done with all units of the part, and closes when its
consumer is; nothing is in flight in a closed one. A step is over when all of its channels are
closed, and then its counts are the run's.
"""

from collections.abc import Iterable

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.orchestrator.records import Channel, ChannelPhase, Pair, Record
from flowgraph.runtime.orchestrator.routes import Route
from flowgraph.runtime.orchestrator.state import Step, TaskChannels, TaskProgress
from flowgraph.runtime.orchestrator.transitions import advance

OPEN = ChannelPhase.OPEN


def open_channels(step: Step, route: Route) -> list[TaskChannels]:
    """The task's, by part; the first task that asks for a channel opens it."""

    def of(pairs: Iterable[Pair], part: int) -> tuple[Channel, ...]:
        return tuple(channel(step, pair, part) for pair in pairs)

    return [
        TaskChannels(
            inner=of(route.inner, part), reads=of(route.border, part), hands=of(route.handed, part)
        )
        for part in range(len(step.parts))
    ]


def channel(step: Step, pair: Pair, part: int) -> Channel:
    """The channel of (stream, consumer) in the part."""
    if pair not in step.channels:
        step.channels[pair] = [Channel(name=" → ".join(pair)) for _ in step.parts]
    return step.channels[pair][part]


def more_can_come(progress: TaskProgress, part: int) -> bool:
    """Whether units of the part may yet become ready that nobody has finished making."""
    return any(channel.phase is OPEN for channel in progress.channels[part].reads)


def part_done(progress: TaskProgress, part: int) -> None:
    """The task is done with all units of the part: it adds no more, and reads no more."""
    found = progress.channels[part]
    for made in (*found.inner, *found.hands):
        made.phase = advance(made.name, made.phase, ChannelPhase.ENDED)
    for read in (*found.inner, *found.reads):
        _close(read)


def _close(found: Channel) -> None:
    if found.in_flight:
        raise InternalError(f"{found.name} is closed with {found.in_flight} samples in flight")
    found.phase = advance(found.name, found.phase, ChannelPhase.CLOSED)


def check_closed(step: Step) -> None:
    """Raises InternalError naming the first channel of a finished step that is not closed."""
    for parts in step.channels.values():
        for part, found in enumerate(parts):
            if found.phase is not ChannelPhase.CLOSED or found.in_flight:
                raise InternalError(
                    f"{found.name} is {found.phase.value} at the end of step {step.step} (part "
                    f"{part}), with {found.in_flight} samples in flight"
                )


def add_to(records: dict[Pair, Record], step: Step) -> None:
    """A finished step's conservation is the run's. Raises InternalError for what is not closed."""
    check_closed(step)
    for pair, counted in step.records.items():
        records.setdefault(pair, Record()).add(counted)
