"""What a wait report holds: plain data, for the journal and whoever reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_NAMED = 8
"""Workers that a wait names; there may be thousands."""


@dataclass(frozen=True, slots=True)
class Signs:
    """heard: when a worker's last message came. silent: last beat of those that should have beaten
    again by now. Seconds since the attempt's start, by worker.
    """

    heard: Mapping[str, float] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """Blocks that a worker handed over and that are not free yet, their bytes, and how many bytes
    it may have in memory. Spilled blocks count, and are not told apart.
    """

    blocks: int
    nbytes: int
    budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWait:
    """state: `starting`, `working`, `waiting`, `ended` or `lost`. waits_for: in words, of one that
    waits. whom: workers, at most `MOST_NAMED`. holds: (task, samples, since).
    keeps: (task, stream, blocks, bytes) of what it looks at after its work was done. pool: None of
    engines, which write nothing.
    """

    name: str
    state: str
    waits_for: str
    whom: tuple[str, ...]
    since: float
    holds: tuple[tuple[str, str, float], ...]
    heard: float | None
    silent: float | None
    keeps: tuple[tuple[str, str, int, int], ...] = ()
    pool: PoolUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWait:
    """What a task's input streams have for it in one step, in units. -1: before membership.

    Units are waiting (not there yet), ready, running or done. whom: who makes what is not there.
    """

    task: str
    streams: tuple[str, ...]
    step: int
    evaluation: bool
    waiting: int
    ready: int
    running: int
    done: int
    whom: tuple[str, ...]
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReport:
    """held: by item, since when its worker has it. pool_bytes, spill_bytes: what each worker may
    keep in memory, and beside it on disk.
    """

    phase: str
    step: int
    steps: int
    version: int
    updates: Mapping[str, int]
    blocks: int
    workers: tuple[WorkerWait, ...]
    streams: tuple[StreamWait, ...]
    held: Mapping[int, float]
    pool_bytes: int = 0
    spill_bytes: int = 0

    def to_plain(self, epoch: float) -> dict[str, Any]:
        """For JSON; times in seconds since 1970. epoch: of the attempt's start."""

        def at(seconds: float | None) -> float | None:
            return None if seconds is None else round(epoch + seconds, 3)

        return {
            "phase": self.phase,
            "step": self.step,
            "steps": self.steps,
            "version": self.version,
            "updates": dict(self.updates),
            "blocks": self.blocks,
            "pool_bytes": self.pool_bytes,
            "spill_bytes": self.spill_bytes,
            "workers": [
                {
                    "name": w.name,
                    "state": w.state,
                    "waits_for": w.waits_for,
                    "from": list(w.whom),
                    "since": at(w.since),
                    "holds": [
                        {"task": task, "samples": samples, "since": at(since)}
                        for task, samples, since in w.holds
                    ],
                    "heard": at(w.heard),
                    "no_beat_since": at(w.silent),
                    "keeps": [
                        {"task": task, "stream": stream, "blocks": blocks, "bytes": nbytes}
                        for task, stream, blocks, nbytes in w.keeps
                    ],
                    "pool": None
                    if w.pool is None
                    else {
                        "blocks": w.pool.blocks,
                        "bytes": w.pool.nbytes,
                        "budget": w.pool.budget,
                    },
                }
                for w in self.workers
            ],
            "streams": [
                {
                    "task": s.task,
                    "streams": list(s.streams),
                    "step": s.step,
                    "evaluation": s.evaluation,
                    "waiting": s.waiting,
                    "ready": s.ready,
                    "running": s.running,
                    "done": s.done,
                    "from": list(s.whom),
                    "since": at(s.since),
                }
                for s in self.streams
            ],
        }
