"""merge_features: encoder features into the placeholder positions of token embeddings.

Bytes moved: each output row is read once, from whichever side it comes, and written once, plus
8 bytes of source map a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flowgraph.kernels.backend import apply, path


class PlaceholderMismatch(ValueError):
    """A sample's placeholder tokens are not as many as its feature rows.

    sample: its number. cause: both counts, in words.
    """

    def __init__(self, sample: int, name: str, cause: str) -> None:
        super().__init__(f"sample {name}: {cause}")
        self.sample = sample
        self.cause = cause


def find_placeholders(
    token_ids: Tensor,
    placeholder: int,
    offsets: Tensor,
    feature_counts: Tensor,
    *,
    names: Sequence[object] | None = None,
) -> Tensor:
    """Rows of `token_ids` that hold `placeholder`, in order: int64 [F] on `token_ids`' device.

    token_ids: int [T], packed. Give the host's copy (a packer has it): counts are checked on the
    host, and ids on a device would have to be waited for.
    offsets: int64 [B + 1] host, the tokens of each sample within `token_ids`.
    feature_counts: int64 [B] host, feature rows of each sample, all its images together.
    names: what to call the samples in an error; their numbers where not given.
    Raises PlaceholderMismatch for the first sample whose two counts differ, ValueError for
    placeholders outside every sample.
    """
    if offsets.shape[0] != feature_counts.shape[0] + 1:
        raise ValueError(
            f"expects offsets [B + 1] and feature_counts [B], "
            f"got {list(offsets.shape)}, {list(feature_counts.shape)}"
        )
    host = token_ids.reshape(-1).cpu()
    positions = torch.nonzero(host == placeholder).reshape(-1)
    bounds = torch.searchsorted(positions, offsets)
    found = bounds[1:] - bounds[:-1]
    wrong = torch.nonzero(found != feature_counts.cpu()).reshape(-1)
    if wrong.numel():
        sample = int(wrong[0])
        raise PlaceholderMismatch(
            sample,
            str(sample if names is None else names[sample]),
            f"{int(found[sample])} placeholder tokens (id {placeholder}), "
            f"{int(feature_counts[sample])} feature rows",
        )
    if int(found.sum()) != positions.shape[0]:
        raise ValueError(
            f"{positions.shape[0] - int(found.sum())} placeholder tokens lie outside every sample"
        )
    return positions.to(token_ids.device)


def merge_features(embeddings: Tensor, features: Tensor, positions: Tensor) -> Tensor:
    """Token embeddings with the feature rows in place of the placeholders'.

    embeddings: [T, D]. positions: int64 [F], distinct rows (see `find_placeholders`).
    features: [F, D] gives [T, D]; several levels (DeepStack) [F, L, D] give [L, T, D]: level 0 is
    merged into the embeddings, every further level is zero but at the placeholders, ready to be
    added to the hidden states behind its layer.
    Differentiable in both; an embedding that was replaced gets zero. ValueError on other shapes.
    """
    if embeddings.dim() != 2 or features.dim() not in (2, 3):
        raise ValueError(
            f"expects embeddings [T, D] and features [F, D] or [F, L, D], "
            f"got {list(embeddings.shape)}, {list(features.shape)}"
        )
    if features.shape[-1] != embeddings.shape[1] or features.dtype != embeddings.dtype:
        raise ValueError(
            f"features: expects {embeddings.dtype} rows of {embeddings.shape[1]}, "
            f"got {features.dtype} rows of {features.shape[-1]}"
        )
    if tuple(positions.shape) != (features.shape[0],) or positions.dtype != torch.int64:
        raise ValueError(
            f"positions: expects int64 [{features.shape[0]}], one a feature row, "
            f"got {positions.dtype} {list(positions.shape)}"
        )
    if positions.device != embeddings.device or features.device != embeddings.device:
        raise ValueError(f"features and positions: expects {embeddings.device}")
    _check_positions(positions, embeddings.shape[0])
    levels = features.unsqueeze(1) if features.dim() == 2 else features
    merged: Tensor = apply(_Merge, embeddings, levels, positions)
    return merged[0] if features.dim() == 2 else merged


def _check_positions(positions: Tensor, rows: int) -> None:
    """On the CPU: within range and distinct. A device would have to be waited for."""
    if positions.device.type != "cpu" or positions.numel() == 0:
        return
    if int(positions.min()) < 0 or int(positions.max()) >= rows:
        raise ValueError(f"positions: expects 0..{rows - 1}")
    if int(torch.bincount(positions, minlength=rows).max()) > 1:
        raise ValueError("positions: a row is named twice")


class _Merge(torch.autograd.Function):
    """(embeddings [T, D], levels [F, L, D], positions [F]) -> [L, T, D]."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, levels: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        merged: Tensor = path("merge", embeddings).merge(embeddings, levels, positions)
        return merged

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (positions,) = ctx.saved_tensors
        embeddings, levels = path("merge", grad).split(grad, positions)
        return embeddings, levels, None
