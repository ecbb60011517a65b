"""Two ranks in two processes over gloo do what one does.

The test's process is rank 0; rank 1 is a child that runs the same function.
"""

import multiprocessing
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from flowgraph.runtime.trainer import collective as collectives
from flowgraph.runtime.trainer.collective import Alone, Collective, CollectiveFailed, connect
from flowgraph.runtime.trainer.interface import UpdateOrder
from tests.runtime.trainer.graphs import (
    difference,
    images,
    item,
    rank_of,
    rows,
    text_plan,
    toy,
    vision_plan,
    with_placeholders,
)

PATIENCE_S = 120.0
UNITS = 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _child(port: int, end: Connection) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    collective = connect("127.0.0.1", port, rank=1, world=2)
    end.send(all_of_it(collective))
    collective.close()


def text_steps(collective: Collective, owners: list[int], exact: bool) -> tuple[str, list[float]]:
    """Two steps on units that ranks own as told; weights, and the first step's gradient."""
    plan = text_plan(toy("weighted", entropy=0.1), clip=1.0)
    rank = rank_of(plan, exact=exact, collective=collective)
    units = [rows(unit, [5, 9 + unit, 3], first=3 * unit) for unit in range(UNITS)]
    weight = float(sum(_counted(unit) for unit in units))
    first: list[float] = []
    for step in range(2):
        for unit in (u for u in reversed(range(UNITS)) if owners[u] == collective.rank):
            given = item("train", {"rows": [units[unit]]}, units=[unit], number=unit, step=step)
            rank.train("train", given)
        order = UpdateOrder(step=step, part=0, divisor=weight, owners=tuple(enumerate(owners)))
        rank.update(order)
        first = first or rank.flat_gradient().tolist()
    return rank.weights_digest(), first


def _counted(unit: Any) -> float:
    """Sum of the loss mask past each row's first token."""
    mask = unit["loss_mask"]
    return float(mask.values.sum() - mask.values[mask.offsets[0][:-1]].sum())


def vision_steps(collective: Collective, owners: list[int]) -> str:
    """Two steps of an encoder whose rank 1 has no image in any of them."""
    plan = vision_plan()
    lm = rank_of(plan, exact=True)
    vit = rank_of(plan, "vit", exact=True, collective=collective)
    sizes: list[list[list[int]]] = [[[2, 1]], [[]], [[3]], [[]], [[]]]
    for step in range(2):
        for unit in (u for u in range(UNITS) if owners[u] == collective.rank):
            tokens = with_placeholders(unit, sizes[unit], first=unit)
            pictures = images(unit, sizes[unit], first=unit)
            at: dict[str, Any] = {"units": [unit], "number": unit, "step": step}
            features = vit.apply("encode", item("encode", {"images": [pictures]}, **at))
            result = lm.train("train", item("train", {"rows": [tokens], **features}, **at))
            vit.backward("encode", unit, [unit], result.gradients["features"])
        vit.update(UpdateOrder(step=step, part=0, divisor=9.0, owners=tuple(enumerate(owners))))
        assert lm._learning is not None
        lm._learning.gradients.discard()
    return vit.weights_digest()


def all_of_it(collective: Collective) -> dict[str, Any]:
    """Everything that the tests below look at, in one meeting of the two processes."""
    return {
        "exact": text_steps(collective, [0, 1, 1, 0, 1], True),
        "uneven": text_steps(collective, [0, 0, 0, 0, 0], True),
        "default": text_steps(collective, [0, 1, 1, 0, 1], False),
        "idle": text_steps(collective, [0, 0, 0, 0, 0], False),
        "vision": vision_steps(collective, [0, 1, 0, 1, 1]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What `all_of_it` gave on rank 0 and rank 1; rank 0's collective, whose peer has left."""

    results: tuple[dict[str, Any], dict[str, Any]]
    listening: set[str]
    collective: Collective


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    port = free_port()
    child = context.Process(target=_child, args=(port, there), daemon=True)
    child.start()
    try:
        collective = connect("127.0.0.1", port, rank=0, world=2)
        mine, listening = all_of_it(collective), addresses_listened_to()
        assert here.poll(PATIENCE_S), "rank 1 gave no result"
        results = (mine, here.recv())
        child.join(PATIENCE_S)
        yield Gang(results=results, listening=listening, collective=collective)
        collective.close()
    finally:
        child.kill()
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


def addresses_listened_to() -> set[str]:
    """Addresses, as /proc writes them, on which this process listens."""
    own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _open(fd)}
    found = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in own:
                found.add(parts[1].partition(":")[0])
    return found


def _open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "uneven"])
def test_exact_weights_are_those_of_one_rank_bit_for_bit(gang: Gang, name: str) -> None:
    alone = text_steps(Alone(), [0] * UNITS, True)
    for results in gang.results:
        assert results[name] == alone


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "idle"])
def test_by_default_gradients_are_those_of_one_rank(gang: Gang, name: str) -> None:
    expected = torch.tensor(text_steps(Alone(), [0] * UNITS, True)[1])
    assert gang.results[0][name] == gang.results[1][name]
    assert difference(torch.tensor(gang.results[0][name][1]), expected) < 1e-5


@pytest.mark.slow
def test_a_rank_without_images_for_several_steps_changes_nothing(gang: Gang) -> None:
    alone = vision_steps(Alone(), [0] * UNITS)
    assert gang.results[0]["vision"] == gang.results[1]["vision"] == alone


def test_one_rank_needs_no_meeting() -> None:
    assert isinstance(connect("127.0.0.1", 1, rank=0, world=1), Alone)
    with pytest.raises(ValueError, match="broadcast from rank 1 of 1"):
        Alone().broadcast(torch.zeros(1), 1)


def test_a_rank_that_does_not_come_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "CONNECT_S", 0.2)
    with pytest.raises(CollectiveFailed, match=r"rank 0 of 2: the gang did not meet at 127.0.0.1:"):
        connect("127.0.0.1", free_port(), rank=0, world=2)


@pytest.mark.slow
def test_a_gang_on_one_host_listens_on_loopback_only(gang: Gang) -> None:
    assert gang.listening == {"0100007F"}


@pytest.mark.slow
def test_a_rank_that_is_gone_ends_the_others_wait(gang: Gang) -> None:
    with pytest.raises(CollectiveFailed, match="rank 0 of 2: broadcast from rank 1 failed: "):
        gang.collective.broadcast(torch.ones(4), 1)
