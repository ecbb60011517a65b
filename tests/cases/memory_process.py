"""A producer that makes items as fast as it can: `python -m tests.cases.memory_process ITEMS
ITEM_BYTES BUDGET SPILL_BYTES FOLDER`.

Prints `up`, then one line an item, its handle, and `full` whenever there is no room; then it waits
for a line of standard input, `OFFSET GENERATION` of a block that nobody reads any more. Ends with
its input.
"""

import os
import sys

import numpy as np

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Column
from flowgraph.runtime.messages import Free
from flowgraph.runtime.pool import Handle, Segment, new_spill
from flowgraph.runtime.worker.output import Store
from tests.runtime.pool_process import to_line


def main(items: int, item_bytes: int, budget: int, spill_bytes: int, folder: str) -> None:
    spill = None
    if spill_bytes:
        fd = new_spill(folder, spill_bytes)
        spill = Segment("producer-0", spill_bytes, fd=fd, pid=os.getpid(), on_disk=True)
    store = Store("producer-0", budget, spill=spill)

    def wait(_: str, __: int) -> None:
        print("full", flush=True)
        offset, generation = map(int, sys.stdin.readline().split())
        store.free(Free(blocks=((offset, generation),)))

    print("up", flush=True)
    for number in range(items):
        handle = store.write(item(number, item_bytes), "rows", wait)
        print(to_line(Handle.from_plain(handle)), flush=True)
    sys.stdin.read()


def item(number: int, nbytes: int) -> Batch:
    """One row whose bytes all are the number."""
    return Batch(1, {"x": Column("uint8", np.full((1, nbytes), number, np.uint8))})


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:5]]
    main(numbers[0], numbers[1], numbers[2], numbers[3], sys.argv[5])
