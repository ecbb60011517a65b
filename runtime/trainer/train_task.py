"""Training on items: join, pack, the user's loss, backward, and the gradient of joined features."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Stage
from flowgraph.ir.plan import Plan, Task
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Int64s
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.functions import load
from flowgraph.runtime.item import Item
from flowgraph.runtime.policy.admit import OverLongError
from flowgraph.runtime.trainer.build import build_module
from flowgraph.runtime.trainer.feature_rows import FeatureRows
from flowgraph.runtime.trainer.forward import Features, forward, is_decoder
from flowgraph.runtime.trainer.interface import Sums, TrainResult
from flowgraph.runtime.trainer.join import Rows, join_rows
from flowgraph.runtime.trainer.micro_batch import MicroBatch
from flowgraph.runtime.trainer.outputs import Fields, Outputs, over_tokens
from flowgraph.runtime.trainer.packing import (
    PackedItem,
    Pieces,
    cut_pieces,
    effective_mask,
    pack_pieces,
)
from flowgraph.runtime.trainer.spec import LOSS_MASK, TOKENS, TrainSpec
from flowgraph.runtime.trainer.tally import Tally
from flowgraph.runtime.trainer.tensors import DeviceColumns, on_device

Collecting = Callable[[Sequence[int]], AbstractContextManager[None]]
"""Says to which units the backward passes inside the block belong."""


class TrainTask:
    """One train task on one rank.

    In exact mode units are taken alone, so that their shapes are their own; otherwise all units of
    an item are packed together.
    """

    def __init__(
        self,
        plan: Plan,
        task: Task,
        module: nn.Module,
        *,
        exact: bool,
        seed: int,
        device: torch.device,
    ) -> None:
        """seed: the run's, for the initial weights of the stage's reference module, if any.

        Raises GraphError when a module gives no log-probs of tokens.
        """
        self._plan = plan
        self._spec = TrainSpec.of(plan, task)
        self._module = module
        self._exact = exact
        self._device = device
        self._functions: dict[str, Callable[..., Any]] = {}
        self._load(self._spec.stage)
        self._require_decoder(module)
        self._reference = self._build_reference(seed)

    def train(self, item: Item, collecting: Collecting) -> TrainResult:
        """Adds the item's gradient to the module's; see `TrainResult`."""
        tally, weights = Tally(), dict.fromkeys(item.units, 0.0)
        gradients: list[Batch] = []
        dropped: list[tuple[int, str]] = []
        for rows in self._groups(item):
            packed = self._pack(rows)
            samples = rows.batch["sample"].values
            dropped += [(int(samples[row]), reason) for row, reason in packed.pieces.dropped]
            weights.update(zip(rows.units, packed.unit_weights(rows), strict=True))
            features = self._feature_rows(rows, learn=True)
            with collecting(rows.units):
                for micro in packed.item.micro_batches:
                    tally.add(self._learn(packed, micro, features))
            gradients += features.gradients() if features else []
            if "reward" in rows.batch.columns:
                reward = rows.batch["reward"].values.sum(dtype=np.float64)
                tally.add({"reward": float(reward), "rows": float(rows.batch.rows)})
        sums = {"loss": 0.0, "entropy": 0.0} | tally.sums() | {"tokens": sum(weights.values())}
        self._require_finite(item, sums)
        joined = self._spec.features
        streams = {joined.stream: tuple(gradients)} if joined and joined.trained else {}
        return TrainResult(weights=weights, sums=sums, gradients=streams, dropped=tuple(dropped))

    @torch.no_grad()
    def evaluate(self, item: Item, stage: Stage) -> Sums:
        """The metric of an `evaluate` stage over the item: (sum, count) by name.

        Without a metric, `loss` by the train stage's own and tokens.
        """
        sums, counts = Tally(), Tally()
        for rows in self._groups(item):
            packed, features = self._pack(rows), self._feature_rows(rows, learn=False)
            for micro in packed.item.micro_batches:
                outputs, fields = self._forward(packed, micro, features)
                if stage.function is None:
                    loss = self._call(self._spec.stage, outputs, fields)[0]
                    figures = {"loss": (loss, fields[LOSS_MASK].sum())}
                else:
                    figures = dict(self._call(stage, outputs, fields))
                sums.add({name: figure[0] for name, figure in figures.items()})
                counts.add({name: figure[1] for name, figure in figures.items()})
        totals = counts.sums()
        return {name: (value, totals[name]) for name, value in sums.sums().items()}

    def _groups(self, item: Item) -> Iterable[Rows]:
        """Rows that are computed together: a unit in exact mode, otherwise the whole item."""
        count = len(item.units)
        for index in [[i] for i in range(count)] if self._exact else [list(range(count))]:
            inputs = {name: [parts[i] for i in index] for name, parts in item.inputs.items()}
            yield join_rows(self._spec, inputs, [item.units[i] for i in index])

    def _pack(self, rows: Rows) -> _Packed:
        batch, limits = rows.batch, self._spec.limits
        tokens = batch[TOKENS].values.astype(np.int64, copy=False)
        self._check_tokens(rows, tokens)
        given = batch[LOSS_MASK].values if LOSS_MASK in batch.columns else None
        try:
            pieces = cut_pieces(
                rows.offsets, limits, ids=batch["sample"].values, visual=rows.visual
            )
        except OverLongError as error:
            stage = self._spec.stage
            raise StageFailed(stage.name, None, str(error), at=stage.at) from error
        mask = effective_mask(given, tokens.size, pieces)
        item = pack_pieces(
            pieces, tokens, rows.offsets, mask, limits, visual=rows.visual, device=self._device
        )
        return _Packed(
            tokens=tokens,
            mask=mask,
            columns=DeviceColumns(batch, self._device),
            mask_on_device=on_device(mask, "float32", self._device),
            pieces=pieces,
            item=item,
            placeholders=item.places(rows.features.places) if rows.features else None,
        )

    def _check_tokens(self, rows: Rows, tokens: Int64s) -> None:
        """Raises StageFailed naming the sample of a token that the module cannot read."""
        module: Any = self._module
        reads = int(getattr(module, "vocab", 0) or module.unembedding().shape[0])
        if tokens.size == 0 or (tokens.min() >= 0 and tokens.max() < reads):
            return
        place = int(np.flatnonzero((tokens < 0) | (tokens >= reads))[0])
        row = int(np.searchsorted(rows.offsets, place, side="right")) - 1
        sample = int(rows.batch["sample"].values[row])
        cause = f"token {tokens[place]} is outside the vocabulary of {reads}"
        stage = self._spec.stage
        raise StageFailed(stage.name, sample, cause, at=stage.at)

    def _learn(
        self, packed: _Packed, micro: MicroBatch, features: FeatureRows | None
    ) -> Mapping[str, Tensor | float]:
        """Forward, loss and backward of one micro-batch; its sums."""
        outputs, fields = self._forward(packed, micro, features)
        loss, metrics = self._call(self._spec.stage, outputs, fields)
        # A frozen decoder has no graph either where no row has features: then nothing is lost.
        if loss.requires_grad:
            loss.backward()
        elif outputs.logprobs.requires_grad:
            stage = self._spec.stage
            cause = "the loss does not depend on the module's outputs"
            raise StageFailed(stage.name, None, cause, at=stage.at)
        if features is not None:
            features.collect()
        entropy = (outputs.entropy.detach() * fields[LOSS_MASK]).sum()
        return {"loss": loss, "entropy": entropy, **metrics}

    def _forward(
        self, packed: _Packed, micro: MicroBatch, features: FeatureRows | None
    ) -> tuple[Outputs, Fields]:
        joined = self._features(packed, micro, features)
        with _named(self._spec.stage):
            outputs = self._score(self._module, micro, packed, joined)
            if self._reference is not None:
                kept = None if joined is None else (joined[0].detach(), joined[1])
                with torch.no_grad():
                    reference = self._score(self._reference, micro, packed, kept).logprobs
        made = {
            LOSS_MASK: over_tokens(packed.mask_on_device, micro),
            "segment_ids": outputs.segment_ids,
        }
        if self._reference is not None:
            made["reference_logprobs"] = reference
        return outputs, Fields(self._spec, packed.columns, micro, made)

    def _score(
        self, module: nn.Module, micro: MicroBatch, packed: _Packed, features: Features | None
    ) -> Outputs:
        return forward(
            module,
            micro,
            packed.tokens,
            temperature=self._spec.temperature,
            device=self._device,
            features=features,
        )

    def _feature_rows(self, rows: Rows, *, learn: bool) -> FeatureRows | None:
        if rows.features is None:
            return None
        return FeatureRows(self._spec, rows, self._device, learn=learn)

    def _features(
        self, packed: _Packed, micro: MicroBatch, features: FeatureRows | None
    ) -> Features | None:
        """The features of the placeholder tokens that the forward runs over."""
        if features is None or packed.placeholders is None:
            return None
        here, places = micro.within(packed.placeholders)
        return (features.take(here), places) if here.size else None

    def _build_reference(self, seed: int) -> nn.Module | None:
        """The frozen module whose log-probs the loss reads beside the trained one's."""
        name = str(self._spec.stage.attributes.get("reference", ""))
        if not name:
            return None
        graph = self._plan.graph
        module = build_module(graph.module(name), graph.root, seed, exact=self._exact)
        self._require_decoder(module)
        return module.requires_grad_(False).to(self._device)

    def _require_decoder(self, module: nn.Module) -> None:
        if not is_decoder(module):
            stage = self._spec.stage
            raise GraphError(
                f"stage '{stage.name}': {type(module).__name__} gives no token log-probs: "
                "a module under a loss has `unembedding()` and `logits(hidden)`",
                at=stage.at,
            )

    def _load(self, stage: Stage) -> Callable[..., Any]:
        """The stage's loss or metric, found once."""
        if stage.name not in self._functions:
            if stage.function is None:
                raise GraphError(f"stage '{stage.name}': names no loss", at=stage.at)
            found = load(stage.function, self._plan.graph.root, exact=self._exact)
            self._functions[stage.name] = partial(found, **stage.function.params)
        return self._functions[stage.name]

    def _call(self, stage: Stage, outputs: Outputs, fields: Fields) -> Any:
        """What the stage's loss or metric returns."""
        function = self._load(stage)
        with _named(stage):
            return function(outputs, fields)

    def _require_finite(self, item: Item, sums: Mapping[str, float]) -> None:
        if not np.isfinite(sums["loss"]):
            samples = [sample for unit in item.samples for sample in unit]
            stage = self._spec.stage
            raise StageFailed(
                stage.name,
                samples[0] if len(samples) == 1 else None,
                f"the loss of step {item.step} is {sums['loss']} over samples "
                f"{', '.join(map(str, samples[:8]))}{', ...' if len(samples) > 8 else ''}",
                at=stage.at,
                hint="a lower learning rate, clipping, or a look at these samples",
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Packed:
    """Rows packed: their flat tokens, what each counts, their fields, and the micro-batches.

    placeholders: int64, where the item's placeholder tokens stand in its packs.
    """

    tokens: NDArray[np.int64]
    mask: NDArray[np.float32]
    mask_on_device: Tensor
    columns: DeviceColumns
    pieces: Pieces
    item: PackedItem
    placeholders: Int64s | None

    def unit_weights(self, rows: Rows) -> list[float]:
        """Sum of the mask over each unit's tokens."""
        edges = rows.offsets[rows.unit_rows]
        return [float(self.mask[a:b].sum(dtype=np.float64)) for a, b in pairwise(edges.tolist())]


@contextmanager
def _named(stage: Stage) -> Iterator[None]:
    """Whatever the user's module, loss or metric raises becomes a StageFailed with its trace."""
    try:
        yield
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        cause = f"{type(error).__name__}: {error}"
        raise StageFailed(stage.name, None, cause, trace=trace, at=stage.at) from error
