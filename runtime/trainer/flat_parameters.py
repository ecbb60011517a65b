"""Trained parameters as one buffer, so that every rank-wide operation is one call.

Small models spend most of an update's time in Python loops over parameters; all-reduce, norm,
clipping, the optimizer and exact mode's additions are element-wise and do not care where one
parameter ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ALIGN = 16
"""Elements: parameters start where vector loads like; the gaps stay 0."""


class FlatParameters:
    """Makes the named parameters, and their gradients, views of two flat buffers.

    Guarantees: the module computes what it did; `weights` and `gradient` [P] hold all of it in
    name order; autograd adds into `gradient` in place. Assumes that nobody replaces the
    parameters or sets their `.grad`; loading weights must copy in place.
    """

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        """Raises ValueError without names, or when the parameters' dtypes or devices differ."""
        parameters = dict(module.named_parameters())
        chosen = [parameters[name] for name in sorted(names)]
        if len({(parameter.dtype, parameter.device) for parameter in chosen}) != 1:
            raise ValueError("flat parameters expect one dtype, one device, and at least one name")
        starts, size = [], 0
        for parameter in chosen:
            starts.append(size)
            size += -(-parameter.numel() // ALIGN) * ALIGN
        first = chosen[0]
        self.weights = nn.Parameter(torch.zeros(size, dtype=first.dtype, device=first.device))
        self.gradient = torch.zeros_like(self.weights, requires_grad=False)
        self.weights.grad = self.gradient
        with torch.no_grad():
            for start, parameter in zip(starts, chosen, strict=True):
                place = self.weights.data[start : start + parameter.numel()].view_as(parameter)
                place.copy_(parameter)
                parameter.data = place
        for start, parameter in zip(starts, chosen, strict=True):
            part = self.gradient[start : start + parameter.numel()]
            parameter.grad = part.view_as(parameter)

    def new_buffer(self) -> Tensor:
        """An uninitialised buffer for a gradient of these parameters."""
        return torch.empty_like(self.gradient)
