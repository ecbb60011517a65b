"""pack and unpack against packs written row by row."""

import itertools

import hypothesis
import numpy as np
import pytest
import torch

from flowgraph.kernels import PackPlan, Ragged, pack, unpack
from tests.kernels.ragged_layouts import FIELDS, PADDING, Case, cases

kernels = hypothesis.settings.get_profile("kernels")


def expected_rows(case: Case, field: Ragged, padding: float, length: int) -> torch.Tensor:
    values = field.values.cpu()
    packed = torch.full((len(case.packs), length, *values.shape[1:]), padding, dtype=values.dtype)
    for number, names in enumerate(case.packs):
        for sample, begin, end in case.spans(names):
            packed[number, begin:end] = field.row(sample).cpu()
    return packed


@hypothesis.settings(kernels)
@hypothesis.given(case=cases())
def test_every_row_stands_where_the_plan_puts_it(case: Case, device: torch.device) -> None:
    fields = case.fields(device)
    packed = pack(fields, case.plan(), padding=PADDING)
    length = packed.layout.length
    for name, field in fields.items():
        expected = expected_rows(case, field, PADDING.get(name, 0), length)
        assert packed[name].dtype == FIELDS[name][1]
        assert torch.equal(packed[name].cpu(), expected), name


@hypothesis.settings(kernels)
@hypothesis.given(case=cases())
def test_segments_positions_and_boundaries_describe_the_packs(
    case: Case, device: torch.device
) -> None:
    packed = pack({"ids": case.fields(device)["ids"]}, case.plan())
    length = packed.layout.length
    segments = torch.full((len(case.packs), length), -1, dtype=torch.int32)
    positions = torch.zeros((len(case.packs), length), dtype=torch.int64)
    owner = [-1] * (len(case.packs) * length)
    for number, names in enumerate(case.packs):
        for segment, (sample, begin, end) in enumerate(case.spans(names)):
            segments[number, begin:end] = segment
            positions[number, begin:end] = torch.arange(end - begin)
            owner[number * length + begin : number * length + end] = [sample] * (end - begin)
    assert torch.equal(packed.segment_ids.cpu(), segments)
    assert torch.equal(packed.positions.cpu(), positions)

    bounds = packed.cu_seqlens.tolist()
    assert packed.cu_seqlens_int32.dtype == torch.int32
    assert packed.cu_seqlens_int32.tolist() == bounds
    assert bounds[0] == 0
    assert bounds[-1] == len(owner)
    spans = list(itertools.pairwise(bounds))
    assert all(len(set(owner[begin:end])) <= 1 for begin, end in spans)
    kept = sorted(case.lengths[sample] for names in case.packs for sample in names)
    held = sorted(end - begin for begin, end in spans if begin == end or owner[begin] >= 0)
    assert held == kept
    assert packed.max_seqlen == max((end - begin for begin, end in spans), default=0)


@hypothesis.settings(kernels)
@hypothesis.given(case=cases())
def test_unpack_brings_back_what_was_packed(case: Case, device: torch.device) -> None:
    fields = case.fields(device)
    packed = pack(fields, case.plan(), padding=PADDING)
    kept = {sample for names in case.packs for sample in names}
    for name, field in fields.items():
        back = unpack(packed[name], packed.layout)
        assert torch.equal(back.lengths, field.lengths)
        for sample in range(field.samples):
            row = field.row(sample)
            expected = row if sample in kept else torch.zeros_like(row)
            assert torch.equal(back.row(sample), expected), name


@hypothesis.settings(kernels)
@hypothesis.given(case=cases())
def test_the_gradient_of_pack_is_unpack_and_the_other_way_round(
    case: Case, device: torch.device
) -> None:
    field = case.fields(device)["features"]
    values = field.values.float().requires_grad_()
    packed = pack({"x": Ragged(values, field.offsets)}, case.plan(), padding={"x": 3})
    weight = torch.randn(packed["x"].shape, generator=torch.Generator().manual_seed(1)).to(device)
    (grad,) = torch.autograd.grad((packed["x"] * weight).sum(), values)
    assert torch.equal(grad, unpack(weight, packed.layout).values)

    rows = packed["x"].detach().requires_grad_()
    back = unpack(rows, packed.layout)
    (grad,) = torch.autograd.grad((back.values * values.detach()).sum(), rows)
    zeroed = pack({"x": Ragged(values.detach(), field.offsets)}, case.plan())
    assert torch.equal(grad, zeroed["x"])


def test_pack_has_a_second_derivative(device: torch.device) -> None:
    values = torch.randn(5, 2, device=device, requires_grad=True)
    plan = PackPlan.of([[1, 0]], align=4)
    packed = pack({"x": Ragged(values, torch.tensor([0, 2, 5]))}, plan)["x"]
    (grad,) = torch.autograd.grad((packed**3).sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), values)
    torch.testing.assert_close(second, 6 * values.detach())


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [7]])
def test_empty_inputs_give_empty_outputs(lengths: list[int], device: torch.device) -> None:
    case = Case(lengths, [list(range(len(lengths)))], 1, None)
    packed = pack(case.fields(device), case.plan())
    assert packed["features"].shape == (1, sum(lengths), 8)
    assert unpack(packed["features"], packed.layout).samples == len(lengths)
    nothing = pack(case.fields(device), PackPlan.of([]))
    assert nothing["ids"].shape == (0, 0)
    assert nothing.cu_seqlens.tolist() == [0]


def test_a_plan_of_long_rows_takes_the_same_rows_as_short_ones(device: torch.device) -> None:
    # long enough for slices instead of indices on the CPU, and for several items on a device
    case = Case([9000, 1, 5000], [[2, 0], [1]], 16, 3)
    fields = {name: case.fields(device)[name] for name in ("ids", "kinds", "features")}
    padding = {name: PADDING[name] for name in ("kinds", "features")}
    packed = pack(fields, case.plan(), padding=padding)
    for name, field in fields.items():
        expected = expected_rows(case, field, PADDING.get(name, 0), packed.layout.length)
        assert torch.equal(packed[name].cpu(), expected), name
    assert torch.equal(packed.positions[0, 5008:14008].cpu(), torch.arange(9000))


@pytest.mark.parametrize("rows", [9, 20])
def test_values_may_be_strided_and_may_lie_inside_a_larger_buffer(
    rows: int, device: torch.device
) -> None:
    pool = torch.arange(3 * rows, device=device).reshape(rows, 3)
    offsets = torch.tensor([4, 6, 6, 9])
    strided = Ragged(pool[:, 1], offsets)
    dense = Ragged(pool[4:9, 1].contiguous(), offsets - 4)
    plan = PackPlan.of([[2, 0, 1]])
    both = pack({"a": strided, "b": dense}, plan)
    assert both["a"].tolist() == both["b"].tolist() == [[19, 22, 25, 13, 16]]
    values = torch.randn(rows, 3, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(pack({"x": Ragged(values, offsets)}, plan)["x"].sum(), values)
    assert grad.sum(1).tolist() == [0.0] * 4 + [3.0] * 5 + [0.0] * (rows - 9)


def test_a_sample_that_does_not_fit_is_named() -> None:
    field = Ragged(torch.zeros(12), torch.tensor([0, 12]))
    with pytest.raises(ValueError, match=r"pack 0: sample 0 ends at row 12, past .* length 8"):
        pack({"x": field}, PackPlan.of([[0]], length=8))


@pytest.mark.parametrize(
    ("packs", "message"),
    [([[0, 1], [0]], "sample 0 is named twice"), ([[5]], "sample 5 of 2"), ([[-1]], "negative")],
)
def test_a_plan_that_names_samples_wrongly_is_refused(packs: list[list[int]], message: str) -> None:
    field = Ragged(torch.zeros(4), torch.tensor([0, 2, 4]))
    with pytest.raises(ValueError, match=message):
        pack({"x": field}, PackPlan.of(packs))


def test_fields_that_disagree_are_named() -> None:
    first = Ragged(torch.zeros(4), torch.tensor([0, 2, 4]))
    other = Ragged(torch.zeros(4), torch.tensor([0, 3, 4]))
    plan = PackPlan.of([[0, 1]])
    with pytest.raises(ValueError, match="field 'b': sample 0 has 3 rows, 2 in 'a'"):
        pack({"a": first, "b": other}, plan)
    with pytest.raises(ValueError, match="no field 'c'"):
        pack({"a": first}, plan, padding={"c": 1})
    with pytest.raises(ValueError, match="at least one field"):
        pack({}, plan)
    packed = pack({"a": first}, plan)
    with pytest.raises(ValueError, match=r"expects \[1, 4, ...\]"):
        unpack(torch.zeros(1, 5), packed.layout)


@pytest.mark.parametrize(
    "offsets", [torch.tensor([0, 3, 2]), torch.tensor([0, 9]), torch.tensor([0.0, 1.0])]
)
def test_offsets_that_are_no_offsets_are_refused(offsets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="offsets"):
        Ragged(torch.zeros(4), offsets)


def pieces(lengths: list[int], cap: int) -> PackPlan:
    """Every sample but the first in pieces of at most `cap` rows, last sample first, two a pack."""
    cut = [
        (sample, begin, min(cap, length - begin))
        for sample, length in list(enumerate(lengths))[:0:-1]
        for begin in range(0, length, cap)
    ]
    order, starts, sizes = (np.array(column, np.int64) for column in zip(*cut, strict=True))
    bounds = np.append(np.arange(0, len(cut), 2), len(cut))
    return PackPlan(order=order, bounds=bounds, length=2 * cap, starts=starts, sizes=sizes)


@pytest.mark.parametrize("cap", [4, 300])
def test_a_plan_may_take_pieces_of_samples(cap: int, device: torch.device) -> None:
    lengths = [5, 9, 0, 4, 11]
    case = Case([length * cap // 4 for length in lengths], [], 1, None)
    field = case.fields(device)["features"]
    plan = pieces(case.lengths, cap)
    packed = pack({"x": field}, plan)
    assert plan.starts is not None
    assert plan.sizes is not None
    spans = zip(packed.layout.target.tolist(), plan.order.tolist(), plan.starts.tolist(),
                plan.sizes.tolist(), strict=True)  # fmt: skip
    for at, sample, start, size in spans:
        here = packed["x"].flatten(0, 1)[at : at + size]
        assert torch.equal(here, field.row(sample)[start : start + size])
        assert packed.positions.flatten()[at : at + size].tolist() == list(range(size))
    back = unpack(packed["x"], packed.layout)
    assert not back.row(0).any()
    assert all(torch.equal(back.row(sample), field.row(sample)) for sample in range(1, 5))


@pytest.mark.parametrize(
    ("order", "starts", "sizes", "message"),
    [
        ([0, 0], [0, 1], [2, 1], "rows of sample 0 are taken twice"),
        ([1, 0], [0, 2], [4, 2], r"sample 0 has 3 rows, row 3 is asked for"),
        ([0], [-1], [2], "none below 0"),
        ([0, 1], [0], [1], r"expects both, \[2\]"),
    ],
)
def test_pieces_that_are_none_are_refused(
    order: list[int], starts: list[int], sizes: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PackPlan(
            order=np.array(order), bounds=np.array([0, len(order)]),
            starts=np.array(starts), sizes=np.array(sizes),
        ).layout(torch.tensor([3, 4]))  # fmt: skip


@hypothesis.settings(kernels)
@hypothesis.given(case=cases())
def test_places_say_where_each_row_went(case: Case) -> None:
    rows = torch.arange(sum(case.lengths))
    offsets = torch.tensor([0, *case.lengths]).cumsum(0)
    packed = pack({"row": Ragged(rows, offsets)}, case.plan(), padding={"row": -1})
    places = packed.layout.places(rows.numpy())
    flat = packed["row"].flatten().tolist()
    kept = [flat.index(row) if row in flat else -1 for row in rows.tolist()]
    assert places.tolist() == kept


def test_a_coarser_layout_brings_back_merged_rows() -> None:
    field = Ragged(torch.arange(16), torch.tensor([0, 4, 12, 16]))
    packed = pack({"x": field}, PackPlan.of([[1], [2, 0]], length=8))
    merged = packed["x"].reshape(2, 2, 4)[..., 0]
    back = unpack(merged, packed.layout.coarser(4))
    assert (back.values.tolist(), back.offsets.tolist()) == ([0, 4, 8, 12], [0, 1, 3, 4])
    with pytest.raises(ValueError, match="multiples of 3 rows"):
        packed.layout.coarser(3)


def test_addresses_past_two_to_the_31_are_exact() -> None:
    # 190,485 tokens of 12,288 elements, and far more, as numbers only
    lengths = torch.tensor([190_485, 3, 2**31, 0, 5])
    layout = PackPlan.of([[2, 0], [4, 3, 1]], length=2**31 + 190_485).layout(lengths)
    assert layout.target.tolist() == [0, 2**31, 2**31 + 190_485, 2**31 + 190_490, 2**31 + 190_490]
    assert layout.cu_seqlens()[-1] == 2 * (2**31 + 190_485)
    assert layout.source.tolist() == [190_488, 0, 190_488 + 2**31, 190_488 + 2**31, 190_485]


def test_items_cover_huge_ranges_with_int64_addresses() -> None:
    device_pack = pytest.importorskip("flowgraph.kernels.device.pack")
    source = np.array([1 << 45], dtype=np.int64)
    target = np.array([(1 << 46) + 4], dtype=np.int64)
    size = np.array([5 * 2**31 + 12], dtype=np.int64)
    items = device_pack.range_items(source, target, size)
    begins, ends = items[:, 1] << items[:, 4], (items[:, 1] + items[:, 2]) << items[:, 4]
    assert begins[0] == target[0]
    assert ends[-1] == target[0] + size[0]
    assert np.array_equal(begins[1:], ends[:-1])
    assert np.array_equal((items[:, 0] << items[:, 4]) - source[0], begins - target[0])
    assert set(items[:, 4]) == {2}
