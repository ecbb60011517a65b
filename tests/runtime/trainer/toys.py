"""Small modules, losses and metrics that the trainer's tests name in their graphs."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from flowgraph.runtime.trainer.outputs import Outputs


class PatchEncoder(nn.Module):
    """Two linear layers over an item's patches, one feature a patch."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 16)
        self.last = nn.Linear(16, out)
        self.calls = 0

    def encode(
        self, columns: Mapping[str, Tensor], offsets: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return self.last(torch.tanh(self.first(columns["patches"]))), offsets["patches"]


class Affine(nn.Module):
    """A module without `encode`: fixed-dim columns in, one row a record out."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 6)

    def forward(self, patch: Tensor) -> Tensor:
        mapped: Tensor = self.map(patch)
        return mapped


class Flattening(nn.Module):
    """A module that gives one row a value instead of one a record."""

    def forward(self, patch: Tensor) -> Tensor:
        return patch.reshape(-1)


def flattening() -> Flattening:
    return Flattening()


def encoder(*, width: int, out: int) -> PatchEncoder:
    return PatchEncoder(width, out)


def affine() -> Affine:
    return Affine()


def not_a_module() -> str:
    return "weights"


def weighted(
    outputs: Outputs, fields: Mapping[str, Tensor], *, entropy: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """A policy gradient with an entropy bonus; reads a field of rows."""
    mask = fields["loss_mask"]
    total = -((fields["advantage"] * outputs.logprobs + entropy * outputs.entropy) * mask).sum()
    return total, {"loss": total}


def detached(outputs: Outputs, fields: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    return outputs.logprobs.detach().sum(), {}


def infinite(outputs: Outputs, fields: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    return outputs.logprobs.sum() * float("inf"), {}


def broken(outputs: Outputs, fields: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    return fields["no_such_field"].sum(), {}


def per_sample_match(
    outputs: Outputs, fields: Mapping[str, Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Share of rows whose every masked token is predicted, by segment ids."""
    segments, mask = outputs.segment_ids.long(), fields["loss_mask"] > 0
    wrong = torch.zeros(int(segments.max()) + 1)
    wrong.index_add_(0, segments, ((outputs.predictions != fields["tokens"]) & mask).float())
    asked = torch.zeros_like(wrong).index_add_(0, segments, mask.float()) > 0
    return {"match": (((wrong == 0) & asked).sum(), asked.sum())}
