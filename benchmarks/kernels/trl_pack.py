"""Times `trl.pack_dataset` on rows of given lengths; runs in TRL's own environment.

Reads {"lengths": [...], "pack_length": n} from standard input; prints processor seconds, best of 3.
`pack_dataset` packs every column of a dataset, so it is given the same six columns as ours.
"""

# mypy: ignore-errors
# The project's environment has none of these three.

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyarrow as pa
from datasets import Dataset
from trl import pack_dataset

COLUMNS = {
    "input_ids": np.int64, "position_ids": np.int64, "labels": np.int64,
    "weights": np.float32, "logprobs": np.float32, "advantages": np.float32,
}  # fmt: skip


def main() -> None:
    request = json.load(sys.stdin)
    sizes = np.array(request["lengths"], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    columns = {
        name: pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(np.ones(int(offsets[-1]), dtype=dtype))
        )
        for name, dtype in COLUMNS.items()
    }
    dataset = Dataset(pa.table(columns)).with_format("arrow")
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        packed = pack_dataset(dataset, request["pack_length"], "bfd")
        best = min(best, time.process_time() - begin)
    assert len(packed) > 0
    print(best)


if __name__ == "__main__":
    main()
