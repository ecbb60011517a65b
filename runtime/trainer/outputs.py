"""What a forward over a micro-batch gives a loss or a metric, and the fields it may read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flowgraph.kernels import gather_rows, scatter_rows, write_rows_
from flowgraph.runtime.trainer.micro_batch import MicroBatch
from flowgraph.runtime.trainer.spec import TrainSpec
from flowgraph.runtime.trainer.tensors import DeviceColumns

RENAMED = {"behaviour_logprobs": "logprobs"}
"""What a loss calls the log-probs that rows were sampled with: `logprobs` are its outputs'."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Which of T tokens each of U predictions is for.

    selected: int64 [S], tokens that are predicted. of: int64 [S], by which prediction; None where
    each is by its own, in order.
    """

    tokens: int
    selected: Tensor
    of: Tensor | None

    def each(self, values: Tensor) -> Tensor:
        """Values [U, ...] of predictions, for each selected token: [S, ...]."""
        return values if self.of is None else gather_rows(values, self.of)

    def spread(self, values: Tensor) -> Tensor:
        """Values [U, ...] of predictions at their tokens: [T, ...], 0 elsewhere."""
        return scatter_rows(self.each(values), self.selected, self.tokens)


class Outputs:
    """Arrays over the T tokens of a micro-batch's rows, row after row, without padding.

    logprobs, entropy: float32 [T] with gradient; of the token, given those before it in its
    row, and of the distribution (in nats) it is drawn from. 0 outside `loss_mask`.
    segment_ids: int32 [T], one number from 1 for each row.
    """

    def __init__(
        self,
        *,
        logprobs: Tensor,
        entropy: Tensor,
        segment_ids: Tensor,
        places: Places,
        states: Tensor,
        module: Any,
    ) -> None:
        """states: [U, D], what tokens are predicted from. places: which tokens."""
        self.logprobs = logprobs
        self.entropy = entropy
        self.segment_ids = segment_ids
        self._places = places
        self._states = states
        self._module = module

    @cached_property
    def predictions(self) -> Tensor:
        """The likeliest token at each place, int64 [T]; -1 outside `loss_mask`."""
        with torch.no_grad():
            best = self._module.logits(self._states).argmax(-1)
        nothing = torch.full_like(self.segment_ids, -1, dtype=torch.int64)
        return write_rows_(nothing, self._places.selected, self._places.each(best), distinct=True)


class Fields(Mapping[str, Tensor]):
    """The rows' fields over a micro-batch's tokens [T, ...], brought there when asked for.

    Fields with one value a token are as they are; fields with one value a row are repeated at
    each of its tokens. `loss_mask` is the effective one; `behaviour_logprobs` is the rows' own
    `logprobs`; `segment_ids` is the outputs'.
    """

    def __init__(
        self,
        spec: TrainSpec,
        columns: DeviceColumns,
        micro: MicroBatch,
        made: Mapping[str, Tensor],
    ) -> None:
        """made: what is there already, under its final name."""
        self._spec = spec
        self._columns = columns
        self._micro = micro
        self._made = dict(made)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._made:
            self._made[name] = self._bring(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        renamed = {new for new, old in RENAMED.items() if old in self._columns}
        known = self._spec.token_fields | self._spec.row_fields | renamed
        return iter(sorted(known | self._made.keys()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _bring(self, name: str) -> Tensor:
        known = name if name in self._columns else RENAMED.get(name, name)
        if known in self._columns and known in self._spec.token_fields:
            return over_tokens(self._columns[known], self._micro)
        if known in self._columns and known in self._spec.row_fields:
            values = self._columns[known]
            return gather_rows(
                values, torch.from_numpy(self._micro.row_of_token()).to(values.device)
            )
        raise KeyError(f"no field '{name}'; there are {', '.join(self)}")


def over_tokens(values: Tensor, micro: MicroBatch) -> Tensor:
    """An item's values, one a flat token, at the tokens of the micro-batch's loss: [T, ...]."""
    if micro.taken.size == values.shape[0]:  # `taken` rises: it is every token
        return values
    return gather_rows(values, torch.from_numpy(micro.taken).to(values.device))
