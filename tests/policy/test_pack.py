import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.runtime.policy import OverLong, OverLongError, pack_lengths, spread
from flowgraph.runtime.policy.rooms import RoomTree
from tests.policy.plans import check_caps, check_whole, fewest_packs

CAP = 12
SECOND_CAP = 8
lengths_lists = st.lists(st.integers(0, CAP), max_size=60)
pairs = st.lists(st.tuples(st.integers(0, CAP), st.integers(0, SECOND_CAP)), max_size=60)


def scrambled(count: int, limit: int) -> list[int]:
    """Lengths 1..limit from integers alone: the same on every machine."""
    values, state = [], 12345
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values.append(1 + (state >> 8) % limit)
    return values


@given(lengths_lists)
def test_every_sample_is_in_exactly_one_pack_within_the_cap(lengths: list[int]) -> None:
    check_whole([pack_lengths(lengths, cap=CAP)], lengths)


@given(pairs)
def test_both_caps_hold(sizes: list[tuple[int, int]]) -> None:
    lengths, second = [size[0] for size in sizes], [size[1] for size in sizes]
    packs = pack_lengths(lengths, cap=CAP, second=second, second_cap=SECOND_CAP)
    check_whole([packs], lengths)
    assert packs.second.tolist() == [second[sample] for sample in packs.order.tolist()]


@settings(max_examples=150)
@given(st.lists(st.integers(1, CAP), max_size=8))
def test_few_samples_take_at_most_a_pack_more_than_brute_force_finds(lengths: list[int]) -> None:
    least = fewest_packs([(length, 0) for length in lengths], CAP, 0)
    count = len(pack_lengths(lengths, cap=CAP))
    assert least <= count <= (11 * least + 6) // 9


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(1, CAP), st.integers(0, SECOND_CAP)), max_size=7))
def test_with_two_caps_few_samples_take_at_most_a_pack_more(sizes: list[tuple[int, int]]) -> None:
    lengths, second = [size[0] for size in sizes], [size[1] for size in sizes]
    packs = pack_lengths(lengths, cap=CAP, second=second, second_cap=SECOND_CAP)
    least = fewest_packs(sizes, CAP, SECOND_CAP)
    assert least <= len(packs) <= least + 1


def test_a_binding_second_cap_is_packed_in_near_linear_time_and_tightly() -> None:
    lengths = np.array(scrambled(20_000, 700)) + 600
    second = np.where(lengths % 3 == 0, 0, 576)
    packs = pack_lengths(lengths, cap=8192, second=second, second_cap=1152)
    check_caps(packs)
    bound = max(-(-int(lengths.sum()) // 8192), -(-int(second.sum()) // 1152))
    assert len(packs) <= 1.01 * bound


def test_no_samples_give_no_packs() -> None:
    packs = pack_lengths([], cap=CAP)
    assert len(packs) == 0
    assert packs.fill == 1.0
    assert packs.boundaries.tolist() == [0]


def test_samples_of_length_zero_lie_in_packs_too() -> None:
    packs = pack_lengths([0, 0, CAP, 0], cap=CAP)
    check_whole([packs], [0, 0, CAP, 0])


def test_the_plan_is_the_same_on_every_machine() -> None:
    lengths = scrambled(3000, 8192)
    packs = pack_lengths(lengths, cap=8192, second=scrambled(3000, 4000), second_cap=6000)
    state = packs.order.astype("<i8").tobytes() + packs.boundaries.astype("<i8").tobytes()
    assert hashlib.sha256(state).hexdigest()[:16] == "e30bebb8d33bbf91"


@pytest.mark.parametrize("policy", ["error", "truncate", "split"])
def test_too_many_visual_tokens_are_an_error_that_no_cut_can_mend(policy: OverLong) -> None:
    with pytest.raises(OverLongError, match=r"visual tokens.*'b' \(9\)"):
        pack_lengths(
            [3, 3],
            cap=CAP,
            second=[1, 9],
            second_cap=SECOND_CAP,
            over_long=policy,
            ids=["a", "b"],
        )


@pytest.mark.parametrize("policy", ["truncate", "split"])
def test_a_sample_with_images_is_not_cut(policy: OverLong) -> None:
    with pytest.raises(OverLongError, match=r"images: sample 1 \(13\)"):
        pack_lengths([3, 13], cap=CAP, second=[0, 2], over_long=policy)


def test_dropped_samples_say_why() -> None:
    packs = pack_lengths(
        [3, 13, 4], cap=CAP, second=[0, 0, 9], second_cap=SECOND_CAP, over_long="drop"
    )
    assert [(gone.index, gone.reason) for gone in packs.dropped] == [
        (1, "over-long"),
        (2, "over-second-cap"),
    ]
    assert packs.order.tolist() == [0]


@given(st.lists(st.integers(0, 40), max_size=30))
def test_split_pieces_make_up_their_samples(lengths: list[int]) -> None:
    packs = pack_lengths(lengths, cap=CAP, over_long="split")
    check_caps(packs)
    for sample, length in enumerate(lengths):
        mine = np.flatnonzero(packs.order == sample)
        spans = sorted(zip(packs.starts[mine].tolist(), packs.lengths[mine].tolist(), strict=True))
        assert spans[0][0] == 0
        assert all(start + size == after for (start, size), (after, _) in pairwise(spans))
        assert sum(size for _, size in spans) == length
    assert [cut.index for cut in packs.cut] == [i for i, n in enumerate(lengths) if n > CAP]


def test_truncated_samples_say_what_was_kept() -> None:
    packs = pack_lengths([5, 30], cap=CAP, over_long="truncate", ids=["a", "b"])
    assert sorted(packs.lengths.tolist()) == [5, CAP]
    (cut,) = packs.cut
    assert (cut.ident, cut.length, cut.kept, cut.pieces) == ("b", 30, CAP, 1)


def test_an_error_spells_out_some_ids_and_counts_the_rest() -> None:
    with pytest.raises(OverLongError, match=r"sample 0 \(13\).*sample|and 12 more"):
        pack_lengths([13] * 20, cap=CAP)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [1.5], "cap": 4}, "expects integers"),
        ({"lengths": [[1]], "cap": 4}, "expects a vector"),
        ({"lengths": [2, -1], "cap": 4}, r"negative length: sample 1 \(-1\)"),
        ({"lengths": [2], "cap": 0}, "cap >= 1"),
        ({"lengths": [2], "cap": 4, "second_cap": 4}, "second_cap needs"),
        ({"lengths": [2], "cap": 4, "second": [1, 2]}, "one size"),
        ({"lengths": [2], "cap": 4, "ids": []}, "one size"),
        ({"lengths": [2], "cap": 4, "over_long": "ignore"}, "over_long: expects one of error"),
    ],
)
def test_malformed_input_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_lengths(**arguments)  # type: ignore[arg-type]  # wrong types are the point


@given(pairs, st.integers(1, 9))
def test_spreading_keeps_pieces_and_caps_and_reaches_the_multiple(
    sizes: list[tuple[int, int]], multiple: int
) -> None:
    lengths, second = [size[0] for size in sizes], [size[1] for size in sizes]
    packs = pack_lengths(lengths, cap=CAP, second=second, second_cap=SECOND_CAP)
    even = spread(packs, multiple)
    check_whole([even], lengths)
    assert len(even) >= len(packs)
    assert len(even) == min(len(packs) + -len(packs) % multiple, len(lengths))


def test_spread_packs_are_evenly_filled() -> None:
    lengths = scrambled(2000, 1500)
    packs = pack_lengths(lengths, cap=8192)
    even = spread(packs, 64)
    assert len(even) % 64 == 0
    assert even.tokens.max() <= 1.02 * even.tokens.mean()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, CAP), st.integers(0, SECOND_CAP)), max_size=40))
def test_the_room_tree_takes_what_a_scan_over_all_packs_takes(
    needs: list[tuple[int, int]],
) -> None:
    tree = RoomTree(CAP, len(needs) + 1)
    plain: dict[int, tuple[int, int]] = {}
    for number, (length, need) in enumerate(needs):
        fits = [(r, v, p) for p, (r, v) in plain.items() if r >= length and v >= need]
        found = tree.take(length, need)
        if not fits:
            assert found is None
            found = (number, CAP, SECOND_CAP)
        else:
            room, visual_room, pack = min(fits)
            assert found == (pack, room, visual_room)
            del plain[pack]
        pack, room, visual_room = found
        plain[pack] = (room - length, visual_room - need)
        tree.add(pack, *plain[pack])
