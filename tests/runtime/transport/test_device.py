"""Device transports: what they promise without a device, and gloo between two processes."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.failures import StaleHandle
from flowgraph.runtime.transport.device_ipc import DeviceExports
from flowgraph.runtime.transport.device_ledger import DeviceLedger, Reading
from flowgraph.runtime.transport.rendezvous import Cancel, Pair, Post, Rendezvous, Transfer

ROOT = Path(__file__).parents[3]
PAIR = Pair("a", "b")


def test_a_tensor_is_held_until_its_last_reader_is_done_or_gone_in_any_order() -> None:
    steps = [("r", Reading.OPENED), ("r", Reading.CLOSED), ("s", Reading.OPENED), ("s", None)]
    for order in itertools.permutations(steps):
        ledger = DeviceLedger(100)
        number = ledger.offer(60, ["r", "s"])
        assert number == 0
        done: set[str] = set()
        for reader, to in order:
            released = (
                ledger.lost(reader) == [number] if to is None else ledger.move(number, reader, to)
            )
            done |= {reader} if to in (None, Reading.CLOSED) else set()
            held = done != {"r", "s"}
            assert ledger.used == (60 if held else 0)
            assert not (released and held)


def test_device_memory_that_is_out_stays_in_the_budget() -> None:
    ledger = DeviceLedger(100)
    first = ledger.offer(60, ["r"])
    assert first is not None
    assert ledger.offer(60, ["r"]) is None
    assert ledger.move(first, "r", Reading.CLOSED)
    assert ledger.offer(60, ["r"]) == 1
    with pytest.raises(StaleHandle):
        ledger.move(7, "r", Reading.OPENED)
    with pytest.raises(StaleHandle):
        ledger.move(1, "stranger", Reading.OPENED)


def test_host_memory_is_not_shared_as_a_devices() -> None:
    with pytest.raises(ConfigurationError, match="host memory"):
        DeviceExports("a", 100).offer(torch.zeros(3), ["b"])


@pytest.mark.parametrize(
    "order", list(itertools.permutations([(0, "a"), (0, "b"), (1, "a"), (1, "b")]))
)
def test_transfers_are_posted_once_both_are_there_and_in_the_plans_order(
    order: tuple[tuple[int, str], ...],
) -> None:
    rendezvous = Rendezvous()
    posted: list[int] = []
    came: set[tuple[int, str]] = set()
    for sequence, rank in order:
        came.add((sequence, rank))
        for action in rendezvous.ready(PAIR, sequence, rank):
            assert isinstance(action, Post)
            assert {(action.sequence, "a"), (action.sequence, "b")} <= came
            posted.append(action.sequence)
    assert posted == [0, 1]
    for sequence in posted:
        rendezvous.finished(PAIR, sequence, "a")
        assert rendezvous.state(PAIR, sequence) is Transfer.POSTED
        rendezvous.finished(PAIR, sequence, "b")
        assert rendezvous.state(PAIR, sequence) is Transfer.DONE


def test_whoever_waits_for_a_lost_rank_is_told_at_once_before_and_after() -> None:
    rendezvous = Rendezvous()
    assert rendezvous.ready(PAIR, 0, "b") == []
    assert rendezvous.lost("a") == [Cancel(PAIR, 0, "b", "a")]
    assert rendezvous.lost("a") == []
    assert rendezvous.ready(PAIR, 1, "b") == [Cancel(PAIR, 1, "b", "a")]
    other = Pair("b", "c")
    rendezvous.ready(other, 0, "b")
    assert rendezvous.ready(other, 0, "c") == [Post(other, 0)]
    with pytest.raises(ValueError, match="not a side"):
        rendezvous.ready(other, 1, "a")


def test_a_posted_transfer_is_not_cancelled_by_a_death() -> None:
    """It ends with the gang: the library gives no way to take it back."""
    rendezvous = Rendezvous()
    rendezvous.ready(PAIR, 0, "a")
    rendezvous.ready(PAIR, 0, "b")
    assert rendezvous.lost("a") == []
    assert rendezvous.state(PAIR, 0) is Transfer.POSTED


@pytest.mark.slow
def test_gloo_moves_tensors_of_any_shape_and_a_lost_rank_is_a_named_error(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.runtime.transport.gloo_process",
                str(rank),
                str(tmp_path),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=60)[0].split() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert said[1] == ["equal"] * 4 + ["PeerLost"]
