"""Random ragged layouts and plans for the kernel tests, and the packs they should give."""

from dataclasses import dataclass

import hypothesis.strategies as st
import torch
from torch import Tensor

from flowgraph.kernels import PackPlan, Ragged

# what a row may be: token fields of every width, and feature rows, 16-byte units and odd ones
FIELDS = {
    "ids": ((), torch.int64),
    "labels": ((), torch.int32),
    "weights": ((), torch.bfloat16),
    "kinds": ((), torch.uint8),
    "mask": ((), torch.bool),
    "logprobs": ((), torch.float32),
    "features": ((8,), torch.bfloat16),
    "odd_features": ((3, 5), torch.float16),
    "wide": ((2,), torch.float64),
}
PADDING = {"labels": -100, "weights": 0.5, "kinds": 7, "features": -1.5, "mask": True}


@dataclass(frozen=True, slots=True)
class Case:
    """Lengths of samples, and the samples of every pack."""

    lengths: list[int]
    packs: list[list[int]]
    align: int
    room: int | None  # rows of a pack beyond the longest, None to leave the length open

    def plan(self) -> PackPlan:
        """The plan, its length worked out without the code under test."""
        length = None if self.room is None else self.longest() + self.room
        return PackPlan.of(self.packs, length=length, align=self.align)

    def longest(self) -> int:
        """Rows up to the end of the last sample of the fullest pack."""
        return max((spans[-1][2] for pack in self.packs if (spans := self.spans(pack))), default=0)

    def spans(self, pack: list[int]) -> list[tuple[int, int, int]]:
        """(sample, first row, end) for every sample of a pack."""
        found, at = [], 0
        for sample in pack:
            found.append((sample, at, at + self.lengths[sample]))
            at += -(-self.lengths[sample] // self.align) * self.align
        return found

    def fields(self, device: torch.device, seed: int = 0) -> dict[str, Ragged]:
        """Every field of `FIELDS` with random rows."""
        generator = torch.Generator().manual_seed(seed)
        offsets = torch.tensor([0, *self.lengths]).cumsum(0)
        rows = int(offsets[-1])
        return {
            name: Ragged(random_rows(rows, shape, dtype, generator).to(device), offsets)
            for name, (shape, dtype) in FIELDS.items()
        }


def random_rows(
    rows: int, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """[rows, *shape] of numbers that every dtype holds, or of real numbers for floats."""
    if dtype.is_floating_point:
        return torch.randn((rows, *shape), generator=generator).to(dtype)
    return torch.randint(
        0, 2 if dtype == torch.bool else 100, (rows, *shape), generator=generator
    ).to(dtype)


def cases(most: int = 6) -> st.SearchStrategy[Case]:
    """Cases with up to `most` samples of 0 to 40 rows, some left out, packs empty at times."""

    @st.composite
    def build(draw: st.DrawFn) -> Case:
        lengths = draw(st.lists(st.integers(0, 40), min_size=0, max_size=most))
        order = draw(st.permutations(range(len(lengths))))
        kept = order[: draw(st.integers(0, len(order)))]
        packs: list[list[int]] = [[] for _ in range(draw(st.integers(1, 3)))]
        for sample in kept:
            packs[draw(st.integers(0, len(packs) - 1))].append(sample)
        align = draw(st.sampled_from([1, 2, 8]))
        return Case(lengths, packs, align, draw(st.sampled_from([None, 0, 5])))

    return build()
