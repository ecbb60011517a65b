"""The built-in engine: continuous batching over fixed slots of a key-value cache, in torch.

Guarantees:
- Each call submitted is returned once. Calls are admitted in the order of their submission.
- A call's uniforms depend on its key alone, so equal logits give equal tokens.
- With `exact`, a call's tokens and log-probabilities are a function of the weights, the call and
  `block`, `prefill_rows`, `max_length`, bit for bit: not of other calls, their order, the slot, the
  number of slots or the engine. Prefill always has `prefill_rows` rows of a width that depends on
  the prompt's length; decoding always has `block` rows and looks at the whole cache.
Assumptions: equal shapes give equal bits row by row, which needs deterministic algorithms and one
thread on a CPU. The engine owns the module: nobody else changes its weights or mode.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowgraph.ir.errors import ConfigurationError, InternalError
from flowgraph.runtime.engine.admission import check_calls
from flowgraph.runtime.engine.interface import Call, Completion
from flowgraph.runtime.engine.prompts import PrefillBatch, plan_exact, plan_trimmed
from flowgraph.runtime.engine.slots import SlotBlock
from flowgraph.runtime.randomness import UniformSource
from flowgraph.runtime.weights import load_flat

SPAN_STEP = 16  # trimmed attention spans grow in such steps: few shapes, little waste


class RolloutModule(Protocol):
    """What a module must offer to be rolled out; `flowgraph.models` has such decoders."""

    def unembedding(self) -> Tensor:
        """[V, width]; the engine wants V."""
        ...

    def new_cache(self, slots: int, max_length: int) -> Any:
        """A cache with `write(slots int64 [P], kv)`.

        If it also has `narrow(rows) -> cache`, a view of the first rows, and `move(sources,
        targets, length)`, which copies rows' first positions, then decoding is trimmed to the
        running calls (not in exact mode).
        """
        ...

    def prefill(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
        """Logits [P, V] after each prompt's last token, and keys and values with `rows(index)`."""
        ...

    def decode(
        self, tokens: Tensor, positions: Tensor, cache: Any, span: int | None = None
    ) -> Tensor:
        """Logits [S, V] after one more token in every slot, looking at `span` positions."""
        ...


class TorchEngine:
    """An engine over one module; see `flowgraph.runtime.engine.interface.Engine`.

    `slots`: calls that run at once, rounded up to whole blocks. `max_length`: tokens of prompt and
    response together. `block`: rows of one decode forward. `prefill_rows`: rows of one prefill in
    exact mode; `prefill_tokens`: padded tokens of one prefill otherwise. `burst`: tokens a call may
    get in one `advance` while nothing finishes or waits.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        slots: int,
        max_length: int,
        exact: bool,
        block: int = 64,
        prefill_rows: int = 16,
        prefill_tokens: int = 8192,
        burst: int = 4,
    ) -> None:
        _check_methods(module)
        self._module = module.eval()
        self._model = cast(RolloutModule, module)
        self._device = next(module.parameters()).device
        self._vocab = self._model.unembedding().shape[0]
        # A module may read ids that it cannot say.
        self._reads = int(getattr(module, "vocab", self._vocab))
        self._max_length = max_length
        self._exact = exact
        self._prefill_rows = prefill_rows
        self._prefill_tokens = prefill_tokens
        self._burst = 1 if exact else burst
        probe = self._model.new_cache(1, 1)
        self._trims = not exact and hasattr(probe, "narrow") and hasattr(probe, "move")
        # Exact: the shape must not depend on the number of slots. Trimmed: one block has the least
        # overhead. Else blocks, so that those without a running call are left out.
        rows = block if exact else slots if self._trims else min(block, slots)
        self._blocks = [self._new_block(rows) for _ in range(_round_up(slots, rows) // rows)]
        self._uniforms = UniformSource()
        self._waiting: deque[Call] = deque()
        self._running = 0
        self._version = 0

    @property
    def pending(self) -> int:
        """Calls submitted and not yet returned."""
        return len(self._waiting) + self._running

    @property
    def version(self) -> int:
        """Version of the weights that the next token is sampled from; 0 before any load."""
        return self._version

    def submit(self, calls: Sequence[Call]) -> None:
        """Queue calls; raises CallRefused, and then queues none of them."""
        check_calls(calls, max_length=self._max_length, reads=self._reads, says=self._vocab)
        self._waiting.extend(calls)

    def advance(self) -> list[Completion]:
        """Admit what fits, then decode until something finishes, at most `burst` tokens a call."""
        finished = self._admit()
        for _ in range(self._burst):
            for block in self._blocks:
                if block.active.any():
                    finished += self._decode(block)
            if finished or self._waiting:
                break
        self._running -= len(finished)
        return finished

    def load_weights(
        self, version: int, flat: NDArray[np.generic] | Tensor, digest: str | None = None
    ) -> None:
        """Replace the weights by a buffer of `flowgraph.runtime.weights.flatten`.

        Running calls go on with the new weights, over keys and values of the old. In exact mode
        that would make results depend on timing: InternalError unless nothing is pending. Raises
        WeightsRefused when the buffer does not fit or its digest differs.
        """
        if self._exact and self.pending:
            raise InternalError(
                f"engine: version {version} arrives while {self.pending} calls are pending; "
                "in exact mode a step's calls end before its weights change"
            )
        load_flat(self._module, flat, digest)
        self._version = version

    def _new_block(self, rows: int) -> SlotBlock:
        return SlotBlock(
            self._model.new_cache(rows, self._max_length),
            rows=rows,
            max_length=self._max_length,
            vocab=self._vocab,
            device=self._device,
        )

    def _admit(self) -> list[Completion]:
        """Move waiting calls into free slots, with their first token sampled."""
        room = sum(block.free for block in self._blocks)
        calls = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        self._running += len(calls)
        finished: list[Completion] = []
        for batch in self._plan(calls):
            finished += self._prefill(batch, [calls[member] for member in batch.members.tolist()])
        return finished

    def _plan(self, calls: Sequence[Call]) -> list[PrefillBatch]:
        prompts = [call.prompt for call in calls]
        if self._exact:
            return plan_exact(prompts, rows=self._prefill_rows, max_length=self._max_length)
        return plan_trimmed(prompts, tokens=self._prefill_tokens)

    def _prefill(self, batch: PrefillBatch, calls: Sequence[Call]) -> list[Completion]:
        """One forward over prompts; their calls fill the blocks from the first on."""
        logits, kv = self._model.prefill(
            torch.from_numpy(batch.tokens).to(self._device),
            torch.from_numpy(batch.lengths).to(self._device),
        )
        finished: list[Completion] = []
        done = 0
        for block in self._blocks:
            taken = slice(done, done + min(block.free, len(calls) - done))
            if taken.start == taken.stop:
                continue
            source = torch.from_numpy(batch.rows[taken]).to(self._device)
            rows = block.start(calls[taken], self._uniforms)
            block.cache.write(torch.from_numpy(rows).to(self._device), kv.rows(source))
            block.take(rows, logits[source], self._version)
            finished += block.collect()
            done = taken.stop
        return finished

    def _decode(self, block: SlotBlock) -> list[Completion]:
        """One more token for every running call of a block."""
        cache, count = block.cache, block.rows
        if self._trims:
            block.compact()
            count = block.running
            cache = cache.narrow(count)
        logits = self._model.decode(
            torch.from_numpy(block.newest[:count]).to(self._device),
            torch.from_numpy(block.positions[:count]).to(self._device),
            cache,
            span=None if self._exact else min(self._max_length, _round_up(block.span, SPAN_STEP)),
        )
        rows = np.flatnonzero(block.active)
        if len(rows) < count:
            logits = logits[torch.from_numpy(rows).to(self._device)]
        block.take(rows, logits, self._version)
        return block.collect()


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _check_methods(module: nn.Module) -> None:
    wanted = [name for name in vars(RolloutModule) if not name.startswith("_")]
    missing = [name for name in wanted if not callable(getattr(module, name, None))]
    if missing:
        raise ConfigurationError(
            f"{type(module).__name__} cannot be rolled out: it has no {', '.join(missing)}",
            hint="an agent's module is a decoder, such as flowgraph.models.decoder",
        )
