"""The user's code may keep what it was handed: it stays as it was, or the run ends saying so."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from flowgraph.cli.standing import read_standing, told
from flowgraph.ir.plan import Plan
from flowgraph.runtime.shell import RunAborted
from tests.runs.running import GRAPHS, plan_of, run

HOARDER = GRAPHS / "hoarder.py"
SMALL = 24 << 10
"""Bytes of a pool: two dozen blocks of the graph's."""


def plan(**settings: str) -> Plan:
    return replace(plan_of(HOARDER, settings), pool_bytes=SMALL)


def test_kept_arrays_never_change_though_places_are_used_again(tmp_path: Path) -> None:
    assert run(plan(steps="12"), tmp_path / "run", exact=True).steps == 12


@pytest.mark.slow
def test_who_keeps_everything_for_ever_is_named_when_no_room_is_left(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RunAborted) as caught:
        run(plan(steps="100", most="0"), tmp_path / "run")
    assert time.monotonic() - began < 60.0
    text = str(caught.value)
    assert "stage 'remember" in text
    assert "of stream 'good' after its work was done (in worker host-0)" in text
    assert "waits for room for" in text
    assert "numpy.array(x)" in (caught.value.hint or "")
    assert "remember" in caught.value.stage
    words = told({**read_standing(tmp_path / "run"), "state": "running"}, time.time())
    assert "of stream good after its work was done" in words
    assert "of 0.0234 MiB in" in words


@pytest.mark.slow
def test_a_thread_that_keeps_records_until_it_is_done_with_them_does_not_end_the_run(
    tmp_path: Path,
) -> None:
    """It keeps more than there is room for, and lets go while nobody else can go on."""
    assert run(plan(steps="24", upload="true"), tmp_path / "run").steps == 24
