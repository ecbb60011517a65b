"""Units that are cut when they are asked for are those that would have been listed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.cut import Cut
from flowgraph.runtime.topology import divide, split_units


@given(
    samples=st.one_of(
        st.lists(st.integers(0, 99), max_size=40, unique=True).map(sorted).map(tuple),
        st.builds(range, st.integers(0, 20), st.integers(20, 60)),
    ),
    size=st.integers(1, 9),
)
def test_a_cut_reads_as_the_tuple_of_its_units(samples: tuple[int, ...] | range, size: int) -> None:
    cut, listed = Cut(samples, size), split_units(samples, size)
    assert len(cut) == len(listed)
    assert tuple(cut) == listed
    assert tuple(cut[unit] for unit in range(len(cut))) == listed
    assert cut[1:3] == listed[1:3]
    for unit in (-1, len(cut)):
        with pytest.raises(IndexError):
            cut[unit]


@given(count=st.integers(0, 50), size=st.integers(1, 9), updates=st.integers(1, 5))
def test_a_membership_is_divided_into_nearly_equal_parts_of_whole_units(
    count: int, size: int, updates: int
) -> None:
    units, parts = divide(range(100, 100 + count), size, updates)
    assert [sample for unit in units for sample in unit] == list(range(100, 100 + count))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == len(units)
    edges = [count * part // updates for part in range(updates + 1)]
    for (a, b), part in zip(pairwise(edges), parts, strict=True):
        assert sum(len(units[unit]) for unit in part) == b - a
        assert all(len(units[unit]) == size for unit in part[:-1])
