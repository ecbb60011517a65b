"""When two ranks may begin a device transfer: only once both are there.

A send or receive of a communication library cannot be taken back: a rank that posts one for a peer
that died waits until the library's own time-out, and the communicator is lost with it. So both
sides first say that they are ready, over messages, and post only then. A death before that cancels
the transfer on the other side at once; a death within it ends the gang, as in a collective.

    PROPOSED ── the other side is ready ──▶ POSTED ── both finished ──▶ DONE
        └────────── a side is lost ──────────▶ CANCELLED

Transfers between a pair are posted in the order in which they were proposed by the plan (their
`sequence`): two sides that post in different orders would wait for each other for ever.
"""

from dataclasses import dataclass, field
from enum import Enum


class Transfer(Enum):
    PROPOSED = "proposed"
    POSTED = "posted"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Pair:
    """Sender and receiver, by worker name."""

    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Post:
    """Both ranks: post this transfer now."""

    pair: Pair
    sequence: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """`rank`: do not wait for this transfer, `lost` is gone; nothing was sent."""

    pair: Pair
    sequence: int
    rank: str
    lost: str


@dataclass(slots=True)
class _Meeting:
    state: Transfer = Transfer.PROPOSED
    ready: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)


class Rendezvous:
    """Of all transfers of a run; pure. Law: proposed == waiting + posted + done + cancelled."""

    def __init__(self) -> None:
        self._meetings: dict[Pair, dict[int, _Meeting]] = {}
        self._next: dict[Pair, int] = {}
        self._lost: set[str] = set()

    def state(self, pair: Pair, sequence: int) -> Transfer | None:
        meeting = self._meetings.get(pair, {}).get(sequence)
        return None if meeting is None else meeting.state

    def ready(self, pair: Pair, sequence: int, rank: str) -> list[Post | Cancel]:
        """A side has its buffer and waits to be told."""
        self._check(pair, rank)
        meeting = self._meetings.setdefault(pair, {}).setdefault(sequence, _Meeting())
        meeting.ready.add(rank)
        lost = self._lost & {pair.sender, pair.receiver}
        if lost:
            meeting.state = Transfer.CANCELLED
            return [Cancel(pair, sequence, rank, min(lost))]
        return self._post(pair)

    def finished(self, pair: Pair, sequence: int, rank: str) -> None:
        """A side's transfer is complete."""
        self._check(pair, rank)
        meeting = self._meetings[pair][sequence]
        if meeting.state is not Transfer.POSTED:
            raise ValueError(f"transfer {sequence} of {pair} is {meeting.state.value}, not posted")
        meeting.finished.add(rank)
        if len(meeting.finished) == 2:
            meeting.state = Transfer.DONE

    def lost(self, rank: str) -> list[Post | Cancel]:
        """A rank is gone: those who wait for it are told. Posted transfers end with the gang."""
        self._lost.add(rank)
        told: list[Post | Cancel] = []
        for pair, meetings in self._meetings.items():
            if rank not in (pair.sender, pair.receiver):
                continue
            for sequence, meeting in sorted(meetings.items()):
                if meeting.state is Transfer.PROPOSED:
                    meeting.state = Transfer.CANCELLED
                    waiting = sorted(meeting.ready - {rank})
                    told += [Cancel(pair, sequence, other, rank) for other in waiting]
        return told

    def _post(self, pair: Pair) -> list[Post | Cancel]:
        posts: list[Post | Cancel] = []
        meetings = self._meetings[pair]
        while True:
            sequence = self._next.get(pair, 0)
            meeting = meetings.get(sequence)
            if meeting is None or len(meeting.ready) < 2:
                return posts
            meeting.state = Transfer.POSTED
            self._next[pair] = sequence + 1
            posts.append(Post(pair, sequence))

    @staticmethod
    def _check(pair: Pair, rank: str) -> None:
        if rank not in (pair.sender, pair.receiver):
            raise ValueError(f"'{rank}' is not a side of {pair}")
