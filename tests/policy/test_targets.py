import numpy as np
import pytest

from benchmarks.packing.mixes import NAMES, draw
from benchmarks.packing.targets import ALL, SECTIONS, missed
from flowgraph.runtime.policy import pack_lengths

SEEDS = range(5)


@pytest.mark.parametrize("mix", NAMES)
@pytest.mark.parametrize("section", [name for name in SECTIONS if name != ALL])
def test_fill_and_balance_reach_their_targets(section: str, mix: str) -> None:
    runs = [SECTIONS[section](mix, seed, 1) for seed in SEEDS]
    means = {figure: float(np.mean([run[figure] for run in runs])) for figure in runs[0]}
    below = {
        figure: value
        for figure, value in means.items()
        if missed(section, figure, mix, value, timed=False)
    }
    assert not below


@pytest.mark.parametrize("mix", NAMES)
def test_the_mixes_hold_what_was_asked_and_fit_the_cap(mix: str) -> None:
    drawn = draw(mix, 4096, 0)
    assert drawn.lengths.size == 4096
    assert not pack_lengths(drawn.lengths, cap=8192).dropped
    assert (drawn.visual <= drawn.lengths).all()
