"""The running calls of one block of slots, as columns, and the cache that they decode from.

Law: free + running == rows; a call is in one slot from `start` until `collect` returns it.
Arrays lie in host memory; only the cache, the logits and the allowed sets are on the device.
"""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.engine.interface import Call, Completion
from flowgraph.runtime.engine.sampler import sample
from flowgraph.runtime.randomness import UniformSource

NO_STOP = -1


class SlotBlock:
    """`rows` slots of at most `max_length` tokens that are decoded in one forward."""

    def __init__(
        self, cache: Any, *, rows: int, max_length: int, vocab: int, device: torch.device
    ) -> None:
        self.cache = cache
        self.rows = rows
        self._vocab = vocab
        self._device = device
        self._calls: list[Call | None] = [None] * rows
        self._free = list(range(rows))  # a heap
        self.active = np.zeros(rows, np.bool_)
        self.newest = np.zeros(rows, np.int64)
        self.positions = np.zeros(rows, np.int64)  # where `newest` stands; 0 in free slots
        self._sampled = np.zeros(rows, np.int64)
        self._limit = np.zeros(rows, np.int64)
        self._temperature = np.ones(rows, np.float64)
        self._stop = np.full((rows, 1), NO_STOP, np.int64)
        self._allowed: torch.Tensor | None = None  # bool [rows, V], made when first asked for
        self._restricted = np.zeros(rows, np.bool_)
        self._uniforms = np.zeros((rows, max_length), np.float64)
        self._tokens = np.zeros((rows, max_length), np.int64)
        self._logprobs = np.zeros((rows, max_length), np.float32)
        self._versions = np.zeros((rows, max_length), np.int32)

    @property
    def free(self) -> int:
        """Slots without a call."""
        return len(self._free)

    @property
    def running(self) -> int:
        """Slots with a call."""
        return self.rows - len(self._free)

    @property
    def span(self) -> int:
        """Cache positions that the next decode step looks at."""
        return int(self.positions.max()) + 1

    def start(self, calls: Sequence[Call], uniforms: UniformSource) -> NDArray[np.int64]:
        """Give each call the lowest free slot; which, int64 [n]. Their first token is due."""
        rows = np.array([heapq.heappop(self._free) for _ in calls], np.int64)
        for row, call in zip(rows.tolist(), calls, strict=True):
            sampling = call.sampling
            self._calls[row] = call
            self._limit[row] = sampling.max_tokens
            self._temperature[row] = sampling.temperature
            self.positions[row] = len(call.prompt) - 1
            drawn = uniforms.draw(call.key, sampling.max_tokens)
            self._uniforms[row, : sampling.max_tokens] = drawn
            self._set_stop(row, sampling.stop)
            self._set_allowed(row, sampling.allowed)
        self.active[rows] = True
        self._sampled[rows] = 0
        return rows

    def take(self, rows: NDArray[np.int64], logits: torch.Tensor, version: int) -> None:
        """Sample the next token of `rows` [n] from `logits` [n, V].

        Raises RunFailed when logits are not finite.
        """
        step = self._sampled[rows]
        allowed = None
        if self._allowed is not None and self._restricted[rows].any():
            allowed = self._allowed[torch.from_numpy(rows).to(self._device)]
        tokens, logprobs = sample(
            logits,
            temperature=self._temperature[rows],
            uniforms=self._uniforms[rows, step],
            allowed=allowed,
        )
        if not np.isfinite(logprobs).all():
            raise RunFailed(
                f"rollout: version {version} of the weights gives logits that are not finite",
                hint="a lower learning rate, or clip the gradient's norm",
            )
        self._tokens[rows, step] = tokens
        self._logprobs[rows, step] = logprobs
        self._versions[rows, step] = version
        self._sampled[rows] = step + 1
        self.newest[rows] = tokens
        self.positions[rows] += 1

    def collect(self) -> list[Completion]:
        """Completions of the calls that met a stop token or their limit; their slots are free."""
        stopped = (self.newest[:, None] == self._stop).any(axis=1)
        done = self.active & (stopped | (self._sampled == self._limit))
        return [self._finish(row) for row in np.flatnonzero(done).tolist()]

    def compact(self) -> None:
        """Move calls from the highest slots into free ones below: the first `running` are taken.

        Needs a cache with `move`. Costs at most one copied row for each call that finished.
        """
        count = self.running
        holes = np.flatnonzero(~self.active[:count])
        if len(holes) == 0:
            return
        movers = np.flatnonzero(self.active[count:]) + count
        self.cache.move(
            torch.from_numpy(movers).to(self._device),
            torch.from_numpy(holes).to(self._device),
            self.span,
        )
        for column in self._columns():
            column[holes] = column[movers]
        for hole, mover in zip(holes.tolist(), movers.tolist(), strict=True):
            self._calls[hole], self._calls[mover] = self._calls[mover], None
        self._release(movers)
        self._free = list(range(count, self.rows))

    def _columns(self) -> list[Any]:
        """All that is known of the running calls, one row a slot: arrays and a tensor."""
        columns: list[Any] = [
            self.active,
            self.newest,
            self.positions,
            self._sampled,
            self._limit,
            self._temperature,
            self._stop,
            self._restricted,
            self._uniforms,
            self._tokens,
            self._logprobs,
            self._versions,
        ]
        return columns if self._allowed is None else [*columns, self._allowed]

    def _release(self, rows: NDArray[np.int64] | int) -> None:
        """Make rows decode as free slots do: any token at position 0."""
        self.active[rows] = False
        self.newest[rows] = self.positions[rows] = 0

    def _finish(self, row: int) -> Completion:
        call, count = self._calls[row], int(self._sampled[row])
        assert call is not None
        self._calls[row] = None
        self._release(row)
        heapq.heappush(self._free, row)
        return Completion(
            id=call.id,
            tokens=self._tokens[row, :count].copy(),
            logprobs=self._logprobs[row, :count].copy(),
            versions=self._versions[row, :count].copy(),
        )

    def _set_stop(self, row: int, stop: tuple[int, ...]) -> None:
        missing = len(stop) - self._stop.shape[1]
        if missing > 0:
            self._stop = np.pad(self._stop, ((0, 0), (0, missing)), constant_values=NO_STOP)
        self._stop[row] = NO_STOP
        self._stop[row, : len(stop)] = stop

    def _set_allowed(self, row: int, allowed: tuple[int, ...]) -> None:
        if allowed:
            if self._allowed is None:
                shape = (self.rows, self._vocab)
                self._allowed = torch.ones(shape, dtype=torch.bool, device=self._device)
            self._allowed[row] = False
            self._allowed[row, list(allowed)] = True
        elif self._restricted[row]:
            assert self._allowed is not None
            self._allowed[row] = True
        self._restricted[row] = bool(allowed)
