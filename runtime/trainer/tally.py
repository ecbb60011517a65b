"""Running sums of named figures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Tally:
    """Adds figures by name in float64, and leaves a device alone until the sums are asked for."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}

    def add(self, figures: Mapping[str, Tensor | float]) -> None:
        """Tensors are scalars; their graph is let go."""
        for name, figure in figures.items():
            value = torch.as_tensor(figure).detach().to(torch.float64)
            before = self._totals.get(name)
            self._totals[name] = value if before is None else before + value

    def sums(self) -> dict[str, float]:
        return {name: float(total) for name, total in self._totals.items()}
