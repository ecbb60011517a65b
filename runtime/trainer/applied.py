"""The three ways a module is applied to a batch of records.

`module.encode(columns, offsets)` for records of any shape; a decoder scores the rows' tokens; any
other module is called with its inputs as tensors [N, ...].
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.graph import Graph, Stage
from flowgraph.kernels import write_rows_
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Int64s
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.trainer.forward import forward, is_decoder
from flowgraph.runtime.trainer.packing import (
    PackLimits,
    cut_pieces,
    effective_mask,
    pack_pieces,
)
from flowgraph.runtime.trainer.spec import LOSS_MASK, TOKENS, sampling_temperature
from flowgraph.runtime.trainer.tensors import tensor_of

SCORED_AT_ONCE = 8192
"""Positions of one forward when a decoder scores rows; no activation is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """values: [F, ...]. offsets: int64 [N + 1], each record's values; None when it has one."""

    values: Tensor
    offsets: Int64s | None


def apply_module(
    module: Any, stage: Stage, graph: Graph, batch: Batch, *, device: torch.device
) -> Applied:
    """The module's output for a batch of at least one record.

    Raises StageFailed when the module raises or returns something else than its kind should.
    """
    try:
        if callable(getattr(module, "encode", None)):
            applied = _encode(module, stage, batch, device)
        elif is_decoder(module):
            temperature = sampling_temperature(graph, stage.inputs[0])
            applied = _score(module, batch, temperature, device)
        else:
            inputs = _inputs(module, stage, batch, device)
            applied = Applied(values=module(*inputs.values()), offsets=None)
    except FlowgraphError:
        raise
    except Exception as error:  # whatever the user's module raises
        trace = "".join(traceback.format_exception(error))
        cause = f"{type(error).__name__}: {error}"
        raise StageFailed(stage.name, None, cause, trace=trace, at=stage.at) from error
    _check(stage, applied, batch.rows)
    return applied


def _inputs(
    module: nn.Module, stage: Stage, batch: Batch, device: torch.device
) -> dict[str, Tensor]:
    """The stage's input fields' flat values, floating ones in the module's own dtype."""
    first = next(module.parameters(), None)
    inputs = {name: tensor_of(batch[name], device) for name in stage.attributes["inputs"]}
    if first is None:
        return inputs
    return {
        name: tensor.to(first.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in inputs.items()
    }


def _encode(module: Any, stage: Stage, batch: Batch, device: torch.device) -> Applied:
    """columns: flat values by name. offsets: int64 [N + 1] of those with a ragged dim."""
    ragged = {name: batch[name] for name in stage.attributes["inputs"] if batch[name].offsets}
    values, offsets = module.encode(
        _inputs(module, stage, batch, device),
        {name: torch.from_numpy(c.offsets[0].copy()).to(device) for name, c in ragged.items()},
    )
    return Applied(values=values, offsets=offsets.cpu().numpy().astype(np.int64, copy=False))


@torch.no_grad()
def _score(module: Any, batch: Batch, temperature: float, device: torch.device) -> Applied:
    """Log-probs of the rows' tokens where their loss mask is set, 0 elsewhere: [T]."""
    column = batch[TOKENS]
    tokens = column.values.astype(np.int64, copy=False)
    given = batch[LOSS_MASK].values if LOSS_MASK in batch.columns else None
    nothing = np.zeros(batch.rows, np.int64)
    limits = PackLimits(micro_batch=SCORED_AT_ONCE)
    pieces = cut_pieces(column.offsets[0], limits, ids=nothing, visual=nothing)
    mask = effective_mask(given, tokens.size, pieces)
    scores = torch.zeros(tokens.size, device=device)
    packed = pack_pieces(
        pieces, tokens, column.offsets[0], mask, limits, visual=nothing, device=device
    )
    for micro in packed.micro_batches:
        outputs = forward(module, micro, tokens, temperature=temperature, device=device)
        taken = torch.from_numpy(micro.taken).to(device)
        write_rows_(scores, taken, outputs.logprobs, distinct=True)
    return Applied(values=scores, offsets=column.offsets[0])


def _check(stage: Stage, applied: Applied, rows: int) -> None:
    values, offsets = applied.values, applied.offsets
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.dim() < 1:
        problem = f"expects a floating tensor from its module, got {type(values).__name__}"
    elif offsets is None and len(values) != rows:
        problem = f"expects {rows} output rows, one a record, got {len(values)}"
    elif offsets is not None and (len(offsets) != rows + 1 or offsets[-1] != len(values)):
        problem = (
            f"expects offsets [{rows + 1}] that end at the {len(values)} output rows, got "
            f"[{len(offsets)}] ending at {offsets[-1] if len(offsets) else 'nothing'}"
        )
    else:
        return
    raise StageFailed(stage.name, None, problem, at=stage.at)
