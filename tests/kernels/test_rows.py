"""gather_rows, scatter_rows and write_rows_ against loops over rows."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from flowgraph.kernels import Pages, gather_rows, scatter_rows, write_rows_

kernels = hypothesis.settings.get_profile("kernels")
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64, torch.uint8]
# of summed rows; bf16 within one rounding step: the interpreter cuts bits off, devices round
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float64: 1e-12}
WIDTHS = st.sampled_from([(), (1,), (3,), (8,), (2, 16), (1031,)])


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).remainder(251).to(dtype)


def picked(source: Tensor, index: list[int]) -> Tensor:
    rows = [source[row] for row in index]
    return torch.stack(rows) if rows else source[:0]


@hypothesis.settings(kernels)
@hypothesis.given(
    width=WIDTHS, dtype=st.sampled_from(DTYPES), index=st.lists(st.integers(0, 6), max_size=9)
)
def test_rows_come_in_the_order_of_the_index_duplicates_included(
    width: tuple[int, ...], dtype: torch.dtype, index: list[int], device: torch.device
) -> None:
    source = numbers((7, *width), dtype)
    where = torch.tensor(index, dtype=torch.int64, device=device)
    gathered = gather_rows(source.to(device), where)
    assert torch.equal(gathered.cpu(), picked(source, index))
    out = torch.empty_like(gathered)
    assert gather_rows(source.to(device), where.int(), out=out) is out
    assert torch.equal(out, gathered)


@hypothesis.settings(kernels)
@hypothesis.given(width=st.sampled_from([(), (3,), (8,)]), stride=st.integers(2, 3))
def test_a_strided_source_gives_the_same_rows(
    width: tuple[int, ...], stride: int, device: torch.device
) -> None:
    pool = numbers((5 * stride, *width), torch.float32).to(device)
    index = torch.tensor([4, 0, 0, 2], device=device)
    assert torch.equal(gather_rows(pool[::stride], index), pool[::stride][index])
    if width:
        columns = pool.unsqueeze(1).expand(-1, 2, *width).transpose(1, -1)
        assert torch.equal(gather_rows(columns, index), columns[index])


def test_a_base_and_a_page_table_name_rows_of_the_pool(device: torch.device) -> None:
    pool = numbers((12, 4), torch.bfloat16).to(device)
    index = torch.tensor([0, 5, 3], device=device)
    assert torch.equal(gather_rows(pool, index, base=6), pool[6:][index])
    pages = Pages(torch.tensor([2, 0], device=device), 3)
    expected = pool[torch.tensor([6, 2, 0], device=device)]
    assert torch.equal(gather_rows(pool, index, pages=pages), expected)
    write_rows_(pool, index, -expected, pages=pages)
    assert torch.equal(gather_rows(pool, index, pages=pages), -expected)


@hypothesis.settings(kernels)
@hypothesis.given(
    width=st.sampled_from([(), (3,), (40,)]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    index=st.lists(st.integers(0, 4), max_size=12),
    deterministic=st.booleans(),
)
def test_scattered_rows_add_up_and_the_gradient_of_gather_is_that(
    width: tuple[int, ...],
    dtype: torch.dtype,
    index: list[int],
    deterministic: bool,
    device: torch.device,
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((len(index), *width), generator=generator).to(dtype)
    expected = torch.zeros((5, *width), dtype=torch.float64)
    for row, value in zip(index, values, strict=True):
        expected[row] += value
    where = torch.tensor(index, dtype=torch.int64, device=device)
    moved = values.to(device)
    scattered = scatter_rows(moved, where, 5, deterministic=deterministic)
    near = TOLERANCE[dtype]
    assert scattered.dtype == dtype
    torch.testing.assert_close(scattered.cpu().double(), expected, atol=near, rtol=near)

    source = torch.randn((5, *width), generator=generator).to(dtype).to(device).requires_grad_()
    gathered = gather_rows(source, where, deterministic=deterministic)
    (grad,) = torch.autograd.grad(gathered, source, moved)
    torch.testing.assert_close(grad.cpu().double(), expected, atol=near, rtol=near)


def test_deterministic_sums_follow_the_order_of_the_index(device: torch.device) -> None:
    # fp32: (1 + 1e8) - 1e8 = 0, but 1 + (1e8 - 1e8) = 1
    values = torch.tensor([1.0, 1e8, -1e8, 5.0], device=device)
    there = torch.tensor([1, 1, 1, 0], device=device)
    assert scatter_rows(values, there, 2).tolist() == [5.0, 0.0]
    assert scatter_rows(values[[1, 2, 0, 3]], there, 2).tolist() == [5.0, 1.0]


@pytest.mark.parametrize("deterministic", [True, False])
def test_sums_of_half_precision_run_in_full_precision(
    deterministic: bool, device: torch.device
) -> None:
    # in bf16 256 + 1 is 256 again, however often
    values = torch.ones(257, dtype=torch.bfloat16, device=device)
    values[0] = 256
    index = torch.zeros(257, dtype=torch.int64, device=device)
    assert scatter_rows(values, index, 1, deterministic=deterministic).item() == 512


def test_scatter_of_doubles_adds_in_doubles(device: torch.device) -> None:
    values = torch.tensor([1.0, 1e-12], dtype=torch.float64, device=device)
    total = scatter_rows(values, torch.tensor([0, 0], device=device), 1)
    assert total.item() == 1.0 + 1e-12


def test_the_gradient_of_scatter_is_a_gather(device: torch.device) -> None:
    values = torch.randn(3, 2, device=device, requires_grad=True)
    index = torch.tensor([1, 1, 0], device=device)
    weight = torch.randn(2, 2, device=device)
    (grad,) = torch.autograd.grad(scatter_rows(values, index, 2), values, weight)
    assert torch.equal(grad, weight[index])


@hypothesis.settings(kernels)
@hypothesis.given(width=WIDTHS, dtype=st.sampled_from(DTYPES), index=st.permutations(range(6)))
def test_written_rows_stand_where_the_index_says(
    width: tuple[int, ...], dtype: torch.dtype, index: list[int], device: torch.device
) -> None:
    before = numbers((13, *width), dtype).to(device)
    target = before.clone()
    values = (numbers((4, *width), dtype) + 1).to(device)
    rows = torch.tensor(index[:4], device=device)
    assert write_rows_(target[1::2], rows, values).data_ptr() == target[1::2].data_ptr()
    expected = before.clone()
    for row, value in zip(index[:4], values, strict=True):
        expected[1 + 2 * row] = value
    assert torch.equal(target, expected)


def test_rows_out_of_range_or_written_twice_are_refused() -> None:
    pool = torch.zeros(4, 2)
    with pytest.raises(ValueError, match=r"expects 0..3, got 0..4"):
        gather_rows(pool, torch.tensor([0, 4]))
    with pytest.raises(ValueError, match=r"got -1..2"):
        scatter_rows(torch.zeros(2), torch.tensor([-1, 2]), 3)
    with pytest.raises(ValueError, match="row 2 is written twice"):
        write_rows_(pool, torch.tensor([2, 2]), torch.ones(2, 2))
    with pytest.raises(ValueError, match="values: expects"):
        write_rows_(pool, torch.tensor([2]), torch.ones(1, 3))
    with pytest.raises(ValueError, match="index: expects int64"):
        gather_rows(pool, torch.tensor([0.0]))
    with pytest.raises(ValueError, match="out: expects contiguous"):
        gather_rows(pool, torch.tensor([0]), out=torch.zeros(2, 2))


@pytest.mark.parametrize(("rows", "count"), [(0, 0), (3, 0)])
def test_no_rows_give_no_rows(rows: int, count: int, device: torch.device) -> None:
    source = torch.zeros(rows, 5, device=device, requires_grad=True)
    index = torch.zeros(count, dtype=torch.int64, device=device)
    gathered = gather_rows(source, index)
    assert gathered.shape == (0, 5)
    (grad,) = torch.autograd.grad(gathered.sum(), source)
    assert torch.equal(grad, torch.zeros(rows, 5, device=device))
