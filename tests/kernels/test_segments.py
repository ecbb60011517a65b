"""segment_reduce and group_statistics against one reduction a segment."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from flowgraph.kernels import group_statistics, segment_reduce

kernels = hypothesis.settings.get_profile("kernels")
EMPTY = {"sum": 0.0, "mean": 0.0, "max": -torch.inf, "min": torch.inf}
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-6, torch.float64: 1e-12}
LENGTHS = st.lists(st.integers(0, 9), max_size=6)


@hypothesis.settings(kernels)
@hypothesis.given(
    lengths=LENGTHS,
    width=st.sampled_from([(), (3,), (2, 130)]),
    op=st.sampled_from(["sum", "mean", "max", "min"]),
    dtype=st.sampled_from(list(TOLERANCE)),
    lead=st.integers(0, 2),
)
def test_every_segment_is_reduced_on_its_own(
    lengths: list[int],
    width: tuple[int, ...],
    op: str,
    dtype: torch.dtype,
    lead: int,
    device: torch.device,
) -> None:
    offsets = torch.tensor([lead, *lengths]).cumsum(0)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((int(offsets[-1]) + 1, *width), generator=generator).to(dtype)
    reduced = segment_reduce(values.to(device), offsets, op)  # type: ignore[arg-type]
    assert reduced.dtype == dtype
    assert reduced.shape == (len(lengths), *width)
    for segment, result in enumerate(reduced.cpu().double()):
        rows = values[offsets[segment] : offsets[segment + 1]].double()
        expected = torch.full(width, EMPTY[op], dtype=torch.float64)
        if len(rows):
            expected = {
                "sum": rows.sum(0), "mean": rows.mean(0), "max": rows.amax(0), "min": rows.amin(0),
            }[op]  # fmt: skip
        torch.testing.assert_close(result, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@hypothesis.settings(kernels)
@hypothesis.given(lengths=LENGTHS, op=st.sampled_from(["sum", "mean"]))
def test_gradients_go_to_the_rows_of_the_segment(
    lengths: list[int], op: str, device: torch.device
) -> None:
    offsets = torch.tensor([1, *lengths]).cumsum(0)
    values = torch.randn(int(offsets[-1]) + 2, 3, device=device, requires_grad=True)
    weight = torch.arange(1.0, len(lengths) + 1, device=device)
    reduced = segment_reduce(values, offsets, op)  # type: ignore[arg-type]
    (grad,) = torch.autograd.grad((reduced * weight[:, None]).sum(), values)
    expected = torch.zeros(values.shape)
    for segment, length in enumerate(lengths):
        share = length if op == "mean" else 1
        expected[offsets[segment] : offsets[segment + 1]] = (segment + 1) / max(1, share)
    torch.testing.assert_close(grad.cpu(), expected)


def test_counts_are_exact_integers(device: torch.device) -> None:
    mask = torch.tensor([True, False, True, True], device=device)
    offsets = torch.tensor([0, 2, 2, 4])
    assert segment_reduce(mask, offsets).tolist() == [1, 0, 2]
    huge = torch.tensor([2**62, -(2**62), 5, 2**53 + 1], device=device)
    assert segment_reduce(huge, offsets).tolist() == [0, 0, 2**53 + 6]


def test_a_long_segment_is_summed_whole(device: torch.device) -> None:
    values = torch.ones(10_007, device=device)
    assert segment_reduce(values, torch.tensor([0, 3, 10_007])).tolist() == [3.0, 10_004.0]


def test_not_a_number_is_not_lost(device: torch.device) -> None:
    values = torch.tensor([1.0, torch.nan, 2.0, 3.0], device=device)
    offsets = torch.tensor([0, 2, 4])
    for op in ("sum", "max", "min"):
        reduced = segment_reduce(values, offsets, op)
        assert reduced.isnan().tolist() == [True, False]


@hypothesis.settings(kernels)
@hypothesis.given(
    lengths=LENGTHS, ddof=st.sampled_from([0, 1]), shift=st.sampled_from([0.0, 1000.0])
)
def test_group_statistics_equal_those_of_every_group(
    lengths: list[int], ddof: int, shift: float, device: torch.device
) -> None:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    rewards = torch.randn(int(offsets[-1]), generator=torch.Generator().manual_seed(0)) + shift
    mean, deviation = group_statistics(rewards.to(device), offsets, ddof=ddof)
    for group, length in enumerate(lengths):
        rows = rewards[offsets[group] : offsets[group + 1]].double()
        average = rows.mean().item() if length else 0.0
        spread = rows.std(correction=ddof).item() if length > ddof else 0.0
        assert mean[group].item() == pytest.approx(average, rel=1e-5, abs=1e-5)
        assert deviation[group].item() == pytest.approx(spread, rel=1e-3, abs=1e-3)


def test_wrong_arguments_are_refused() -> None:
    values, offsets = torch.zeros(4), torch.tensor([0, 4])
    with pytest.raises(ValueError, match=r"within 0\.\.4"):
        segment_reduce(values, torch.tensor([0, 5]))
    with pytest.raises(ValueError, match="op: expects one of"):
        segment_reduce(values, offsets, "median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no gradient"):
        segment_reduce(values.requires_grad_(), offsets, "max")
    with pytest.raises(ValueError, match="expects floating values"):
        segment_reduce(torch.arange(4), offsets, "mean")
    with pytest.raises(ValueError, match="rewards: expects"):
        group_statistics(torch.zeros(4, 1), offsets)
