"""More than 2^31 elements, in memory that is reserved but never touched: reading it gives zeros."""

import mmap

import pytest
import torch
from torch import Tensor

from flowgraph.kernels import PackPlan, Ragged, gather_rows, pack, write_rows_

ROWS, WIDTH = 190_485, 12_288  # 2.3e9 elements of one byte, P5's packed tokens
ROW = 190_480


@pytest.fixture
def untouched() -> Tensor:
    """uint8 [190485, 12288], zeros that take no memory until they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, ROWS * WIDTH, flags=flags)
    return torch.frombuffer(memory, dtype=torch.uint8).view(ROWS, WIDTH)


def test_rows_past_two_to_the_31_elements_are_read_and_written(untouched: Tensor) -> None:
    assert ROW * WIDTH > 2**31
    untouched[ROW] = torch.arange(WIDTH).remainder(251).to(torch.uint8)
    gathered = gather_rows(untouched, torch.tensor([ROW, 3, ROW + 1]))
    assert torch.equal(gathered[0], untouched[ROW])
    assert not gathered[1:].any()
    write_rows_(untouched, torch.tensor([ROW + 2]), gathered[:1])
    assert torch.equal(untouched[ROW + 2], untouched[ROW])
    assert not untouched[ROW + 3].any()


def test_samples_past_two_to_the_31_elements_are_packed(untouched: Tensor) -> None:
    untouched[ROW:, ::7] = 5
    offsets = torch.tensor([0, ROW, ROW + 2, ROWS])
    packed = pack({"x": Ragged(untouched, offsets)}, PackPlan.of([[2, 1]], length=6))
    assert torch.equal(packed["x"][0, :3], untouched[ROW + 2 :])
    assert torch.equal(packed["x"][0, 3:5], untouched[ROW : ROW + 2])
    assert not packed["x"][0, 5].any()
