"""The receiver's side of one fetch: a state machine without sockets, memory or clocks.

Guarantees: a chunk is written to its place only while it is the next one wanted, and counts only
when its digest is the owner's; so what is counted is a prefix, byte for byte the block's, and a
fetch goes on after any interruption where it stopped. It ends: `DONE`, or `FAILED` with an error
that names the peer, at most `patience_s` after the last progress.

    OPENING ── Opened ──▶ RECEIVING ── last chunk ──▶ DONE
       │  ▲                    │
       │  └─ quiet, gap, bad ──┤
       └──── Refused, patience, too many bad ──▶ FAILED
"""

from dataclasses import dataclass
from enum import Enum

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.messages import PlainHandle
from flowgraph.runtime.transport.chunks import CHUNK, DIGEST, chunks_in, span
from flowgraph.runtime.transport.failures import BlockCorrupt, FetchRefused, PeerLost
from flowgraph.runtime.transport.wire import Close, Credit, Open, Opened, Refused

DEAF_S = 1.0
"""Longer past the time at which a fetch is to be looked at, and nobody could: the process was
stopped, or its other threads let none run."""


class Phase(Enum):
    OPENING = "opening"
    RECEIVING = "receiving"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """quiet_s: without progress, ask again after this; twice as long each time.

    patience_s: without progress for so long, the peer is lost. bad: chunks that may be damaged,
    in all, before the block is given up.
    """

    quiet_s: float = 2.0
    patience_s: float = 20.0
    bad: int = 3


@dataclass(frozen=True, slots=True)
class Say:
    """Send the message to the peer."""

    message: Open | Credit | Close


@dataclass(frozen=True, slots=True)
class Join:
    """Collect the chunks at the endpoint, by showing the token there."""

    endpoint: str
    token: bytes


Action = Say | Join


@dataclass(slots=True, kw_only=True)
class Fetch:
    """One block on its way here. `received` chunks are verified, `window` may be on the wire."""

    fetch: int
    block: PlainHandle
    nbytes: int
    whose: str
    window: int
    limits: Limits = Limits()
    received: int = 0
    phase: Phase = Phase.OPENING
    error: RunFailed | None = None
    attempt: int = 0
    _digests: bytes = b""
    _bad: int = 0
    _progress: float = 0.0
    _asked: float = 0.0
    _quiet: float = 0.0

    @property
    def chunks(self) -> int:
        return chunks_in(self.nbytes)

    @property
    def over(self) -> bool:
        return self.phase in (Phase.DONE, Phase.FAILED)

    def begin(self, now: float) -> list[Action]:
        """Ask for the block. An empty one is asked for, too: it may be gone."""
        self._progress = now
        return self._ask(now)

    def opened(self, message: Opened, now: float) -> list[Action]:
        if self.over or message.attempt != self.attempt:
            return []
        if message.chunk_bytes != CHUNK or len(message.digests) != DIGEST * self.chunks:
            return self._fail(FetchRefused(f"{self._named()}: the peer cuts blocks differently"))
        if self._digests and message.digests != self._digests:
            return self._fail(BlockCorrupt(f"{self._named()}: its digests changed"))
        self._digests = message.digests
        self.phase = Phase.RECEIVING
        if self.received == self.chunks:
            return self._finish()
        return [Join(message.bulk, message.token)] if message.bulk else []

    def refused(self, message: Refused) -> list[Action]:
        if self.over:
            return []
        return self._fail(FetchRefused(f"{self._named()}: {message.why}"))

    def place(self, index: int) -> tuple[int, int] | None:
        """Where in the block the chunk's bytes go; None when they are not wanted (now)."""
        wanted = not self.over and bool(self._digests) and index == self.received
        return span(index, self.nbytes) if wanted else None

    def arrived(self, attempt: int, index: int, digest: bytes, now: float) -> list[Action]:
        """A chunk came: at its place if `place` gave one; digest of what is there now."""
        if self.over or not self._digests or index < self.received:
            return []
        if index > self.received:  # some were lost; what an old attempt lost is asked for already
            return self._ask(now) if attempt == self.attempt else []
        if digest != self._digests[DIGEST * index : DIGEST * (index + 1)]:
            self._bad += 1
            if self._bad > self.limits.bad:
                what = f"chunk {index} of {self.chunks} is damaged, the {self._bad}th such chunk"
                return self._fail(BlockCorrupt(f"{self._named()}: {what}"))
            return self._ask(now)
        self.received += 1
        self._progress = self._asked = now
        self._quiet = self.limits.quiet_s
        if self.received == self.chunks:
            return self._finish()
        return [Say(Credit(**self._window()))] if self._should_tell() else []

    def tick(self, now: float) -> list[Action]:
        """Time went by. Call it at `due` or later, when what has come was taken.

        Time in which nobody looked is not held against the peer.
        """
        if self.over:
            return []
        deaf = now - self.due()
        if deaf > DEAF_S:
            self._progress += deaf
            self._asked += deaf
        if now - self._progress >= self.limits.patience_s:
            had = f"{self.received} of {self.chunks} chunks had come"
            return self._fail(
                PeerLost(
                    f"{self._named()}: nothing came for {self.limits.patience_s:g} s; {had}",
                    hint="is that process alive, and its address reachable from here?",
                )
            )
        if now - self._asked >= self._quiet:
            self._quiet *= 2
            return self._ask(now, first=False)
        return []

    def due(self) -> float:
        """When `tick` has something to do next."""
        return min(self._progress + self.limits.patience_s, self._asked + self._quiet)

    def cancel(self, error: RunFailed) -> list[Action]:
        """Give up from this side."""
        return [] if self.over else self._fail(error)

    def _ask(self, now: float, first: bool = True) -> list[Action]:
        self.attempt += 1
        self.phase = Phase.OPENING
        self._asked = now
        if first or not self._quiet:
            self._quiet = self.limits.quiet_s
        start, upto = self.received, min(self.received + self.window, self.chunks)
        ask = Open(fetch=self.fetch, attempt=self.attempt, block=self.block, start=start, upto=upto)
        return [Say(ask)]

    def _should_tell(self) -> bool:
        """Every chunk of a small window, every fourth part of a large one."""
        return self.received % max(1, self.window // 4) == 0

    def _window(self) -> dict[str, int]:
        upto = min(self.received + self.window, self.chunks)
        return {
            "fetch": self.fetch,
            "attempt": self.attempt,
            "received": self.received,
            "upto": upto,
        }

    def _finish(self) -> list[Action]:
        self.phase = Phase.DONE
        return [Say(Close(fetch=self.fetch))]

    def _fail(self, error: RunFailed) -> list[Action]:
        self.phase = Phase.FAILED
        self.error = error
        return [Say(Close(fetch=self.fetch))]

    def _named(self) -> str:
        return f"fetching {self.nbytes} bytes of '{self.block[0]}' from {self.whose}"
