"""Which orders' blocks are asked for: in order, as there is room, one whatever its size."""

import gc
import select
from collections.abc import Iterator

import pytest

from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.incarnation import token_of
from flowgraph.runtime.messages import Run
from flowgraph.runtime.pool import Handle, Segment
from flowgraph.runtime.transport.porter import porter_of
from flowgraph.runtime.transport.remote import Nodes, Remote
from flowgraph.runtime.worker.arrivals import Arrivals, Handed
from tests.runtime.transport.rig import HURRY, bytes_batch, serving, written
from tests.runtime.transport.workers import run

MIB = 1 << 20


@pytest.fixture
def remote() -> Iterator[Remote]:
    """With room for three MiB."""
    with serving([porter_of("there"), "host-0"]) as there:
        nodes = Nodes(
            of={"host-0": "here", "host-1": "there"}, porters={"there": there.server.endpoint}
        )
        found = Remote("here", nodes, there.rings["host-0"], 3 * MIB, HURRY)
        yield found
        found.close()


SEGMENTS = [Segment(token_of(name, 0), 1 << 26) for name in ("host-0", "host-1")]


def order(item: int, nbytes: int, of: int = 1) -> tuple[Run, Handle]:
    handle = written(SEGMENTS[of], bytes_batch(nbytes, item))
    return run(item, "play", {"chosen": handle.to_plain()}), handle


def until_here(arrivals: Arrivals, remote: Remote, handed: Handed) -> None:
    arrivals.look()
    while not arrivals.is_here(handed):
        assert select.select([remote], [], [], 10.0)[0], "nothing arrives"
        arrivals.look()


def test_blocks_are_asked_for_in_order_as_there_is_room_and_what_is_here_begins(
    remote: Remote,
) -> None:
    arrivals = Arrivals(remote)
    runs, blocks = zip(*(order(n, MIB * size) for n, size in enumerate((1, 1, 2, 1))), strict=True)
    first, second, large, last = (arrivals.hand(one) for one in runs)
    own = arrivals.hand(order(4, MIB, of=0)[0])
    arrivals.look()
    assert arrivals.is_here(own)
    assert remote.fetched == 2 * MIB  # the last would fit, but not before the large one
    for handed in (first, second):
        until_here(arrivals, remote, handed)
    looks_at = remote.open(blocks[0])
    arrivals.begun(first)
    arrivals.begun(second)
    arrivals.ended(second)
    gc.collect()
    until_here(arrivals, remote, large)
    assert remote.used == remote.fetched - MIB == 3 * MIB
    del looks_at
    arrivals.ended(first)
    until_here(arrivals, remote, last)


def test_an_item_beyond_the_budget_comes_when_no_others_copies_are_in_use(remote: Remote) -> None:
    arrivals = Arrivals(remote)
    small, large = (arrivals.hand(order(n, MIB * size)[0]) for n, size in enumerate((1, 5)))
    until_here(arrivals, remote, small)
    arrivals.begun(small)
    arrivals.look()
    assert remote.fetched == MIB
    arrivals.ended(small)
    until_here(arrivals, remote, large)
    assert remote.used == 5 * MIB


def test_copies_of_items_that_wait_for_their_gradient_are_nobodys_fault(remote: Remote) -> None:
    """What a rank keeps for its backward passes is not held against the user's code."""
    arrivals = Arrivals(remote)
    kept = []
    for number, size in enumerate((2, 2, 1)):
        made, handle = order(number, MIB * size)
        handed = arrivals.hand(made)
        until_here(arrivals, remote, handed)
        kept.append(remote.open(handle))
        arrivals.begun(handed)
        arrivals.ended(handed, goes_on=True)
    assert remote.used == 5 * MIB
    for number in range(3):
        arrivals.ended(arrivals.hand(run(number, "play", {})))
    arrivals.hand(order(3, MIB)[0])
    with pytest.raises(StageFailed, match="keeps"):
        arrivals.look()
