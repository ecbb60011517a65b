"""Conservation, counted: every record that is admitted is consumed once, or dropped with a reason.

A channel is what one stage reads of one stream in one part of a step (samples up to one optimizer
update). It is OPEN while producers may add to it, ENDED when no more can come, and CLOSED when all
that came is consumed or dropped. A partial micro-batch is handed out once its channels have ended.
"""

import enum
from dataclasses import dataclass

Pair = tuple[str, str]
"""(stream, consumer): what conservation is counted by."""


class ChannelPhase(enum.Enum):
    """Where a channel is. Allowed changes are in `transitions.py`."""

    OPEN = "open"
    ENDED = "ended"
    CLOSED = "closed"


@dataclass(slots=True)
class Record:
    """Samples: admitted = consumed + dropped + in_flight."""

    admitted: int = 0
    consumed: int = 0
    dropped: int = 0

    @property
    def in_flight(self) -> int:
        return self.admitted - self.consumed - self.dropped

    def add(self, other: "Record") -> None:
        self.admitted += other.admitted
        self.consumed += other.consumed
        self.dropped += other.dropped


@dataclass(slots=True)
class Channel(Record):
    """Of one (stream, consumer) in one part, by name."""

    name: str = ""
    phase: ChannelPhase = ChannelPhase.OPEN
