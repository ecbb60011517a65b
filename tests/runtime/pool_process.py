"""The other side of the pool's tests: `python -m tests.runtime.pool_process own|read`.

own: writes one batch, prints its handle (msgpack, hex), and holds it until standard input ends.
read: reads handles from standard input, a line each, and answers each with what it finds.
"""

import sys

import msgpack
import numpy as np

from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.failures import OwnerGone, StaleHandle
from flowgraph.runtime.pool import Handle, Reader, Segment


def sample_batch(rows: int = 1000) -> Batch:
    """Rows of known values."""
    return Batch(rows, {"x": Column("int64", np.arange(rows, dtype=np.int64) * 7)})


def to_line(handle: Handle) -> str:
    packed: bytes = msgpack.packb(handle.to_plain())
    return packed.hex()


def from_line(line: str) -> Handle:
    return Handle.from_plain(msgpack.unpackb(bytes.fromhex(line.strip())))


def own() -> None:
    segment = Segment("owner-0", 1 << 22)
    handle = segment.try_write(sample_batch())
    assert handle is not None
    print(to_line(handle), flush=True)
    sys.stdin.read()


def read() -> None:
    reader = Reader()
    for line in sys.stdin:
        try:
            batch = reader.open(from_line(line))
            values = batch["x"].values
            owned = values.flags.owndata or values.flags.writeable
            print("copied" if owned else f"sum {int(values.sum())}", flush=True)
        except (OwnerGone, StaleHandle) as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    {"own": own, "read": read}[sys.argv[1]]()
