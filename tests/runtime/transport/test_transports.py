"""Every host transport keeps the same promises, whatever lies between the two sides."""

from pathlib import Path

import pytest

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.failures import BlockTooLarge, StaleHandle
from flowgraph.runtime.transport.in_process import InProcess
from flowgraph.runtime.transport.interface import Address, Transport
from flowgraph.runtime.transport.keys import new_keyrings
from flowgraph.runtime.transport.shared_memory import SharedMemory
from flowgraph.runtime.transport.zeromq import ZeroMq
from flowgraph.runtime.wire_types import BadMessage
from tests.runtime.pool_process import sample_batch
from tests.runtime.transport.rig import HURRY, LOOPBACK, bytes_batch

WAYS = ["in-process", "shared-memory", "zeromq-ipc", "zeromq-tcp", "zeromq-trusted"]
BUDGET = 1 << 20


def pair(way: str, folder: Path) -> tuple[Transport, Transport]:
    """A producer's end and a consumer's end; the same one in one process."""
    if way == "in-process":
        both = InProcess("p", BUDGET)
        return both, both
    if way == "shared-memory":
        return SharedMemory("p", BUDGET), SharedMemory("c", BUDGET)
    if way == "zeromq-ipc":
        ends = [ZeroMq(name, BUDGET, f"ipc://{folder}/{name}", limits=HURRY) for name in "pc"]
    else:
        rings, trusted = new_keyrings(["p", "c"]), way == "zeromq-trusted"
        ends = [
            ZeroMq(name, BUDGET, LOOPBACK, rings[name], trusted=trusted, limits=HURRY)
            for name in "pc"
        ]
    return ends[0], ends[1]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_put_is_got_until_it_is_freed_and_within_the_budget(
    way: str, tmp_path: Path
) -> None:
    producer, consumer = pair(way, tmp_path)
    batch = sample_batch()
    address = producer.put(batch, "rows")
    assert address is not None
    assert way.startswith(address.kind)
    again = Address.from_plain(address.to_plain())
    assert consumer.get(again).equals(batch)
    assert consumer.get(again).equals(batch)  # as often as one likes
    consumer.done(again)
    consumer.done(again)
    producer.free(address)
    with pytest.raises(StaleHandle):
        producer.free(address)
    with pytest.raises(RunFailed, match="freed"):
        consumer.get(address)
    large = bytes_batch(BUDGET // 2 + 1)
    assert producer.put(large) is not None
    assert producer.put(large) is None
    with pytest.raises(BlockTooLarge, match="stream 'rows'"):
        producer.put(bytes_batch(2 * BUDGET), "rows")
    for end in {id(end): end for end in (producer, consumer)}.values():
        end.close()


@pytest.mark.parametrize(
    "plain", [(), ("x",), ("pigeon", "p", "", ()), ("zeromq", "p", 3, ()), ("zeromq", "p", "", 3)]
)
def test_an_address_that_is_none_is_refused(plain: tuple[object, ...]) -> None:
    with pytest.raises(BadMessage):
        Address.from_plain(plain)
