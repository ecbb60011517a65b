"""Put and get within a machine: rows given as tensors, columns given, one dense array."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgpack
import numpy as np
import torch
import zmq

from benchmarks.transport.rig import in_turns, ratio, side
from benchmarks.transport.workload import DTYPES, FIELDS, dense, ragged_rows
from flowgraph.ir.types import Field, Ragged, RecordType
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.loose import LooseBatch
from flowgraph.runtime.pool import Reader, Segment
from flowgraph.runtime.transport.sockets import Context, Socket, make_socket

RECORD = RecordType(
    key=(),
    fields=tuple(
        Field(name=name, dtype=dtype, dims=(Ragged("tokens"),))  # type: ignore[arg-type]
        for name, dtype in zip(FIELDS, DTYPES, strict=True)
    ),
)


@dataclass(frozen=True, slots=True)
class HostFigures:
    """Seconds by what was measured; ratios of what must be compared within one run."""

    seconds: Mapping[str, float]
    first_put: float
    views_by_copies: float
    get_alone: float


class PutGet:
    """Put here, tell the other process, wait until it has the views, free."""

    def __init__(self, socket: Socket) -> None:
        self._segment = Segment("bench", 1 << 27)
        self._socket = socket

    def __call__(self, batch: Batch | LooseBatch) -> None:
        handle = self._segment.try_write(batch)
        assert handle is not None
        self._socket.send(msgpack.packb(handle.to_plain()))
        assert int(self._socket.recv()) == batch.rows
        self._segment.free(handle)


def measure(rounds: int) -> HostFigures:
    folder = tempfile.mkdtemp(prefix="flowgraph-bench-")
    context: Context = zmq.Context()
    with side("pool", f"ipc://{folder}/pool"), side("echo", f"ipc://{folder}/echo"):
        handles, echo = (make_socket(context, zmq.DEALER) for _ in range(2))
        handles.bind(f"ipc://{folder}/pool")
        echo.bind(f"ipc://{folder}/echo")
        put_get = PutGet(handles)
        rows = [{k: torch.from_numpy(v) for k, v in row.items()} for row in ragged_rows()]
        columnar = Batch.from_rows(RECORD, rows)
        whole = Batch(256, {"x": Column("float32", dense())})
        copied = [np.empty_like(column.values) for column in columnar.columns.values()]

        def copy_once() -> None:
            for into, column in zip(copied, columnar.columns.values(), strict=True):
                np.copyto(into, column.values)

        def copies() -> None:
            """What views must be measured by: 2.5 copies and a request-reply."""
            copy_once()
            copy_once()
            half = columnar.columns["tokens"].values
            for into in copied[:4]:
                np.copyto(into, half)
            half_more = half.size // 2
            np.copyto(copied[4][:half_more], columnar.columns[FIELDS[4]].values[:half_more])
            echo.send(b"x" * 64)
            echo.recv()

        PutGet(handles)(columnar.slice(0, 1))  # the other process is up
        began = time.perf_counter()
        put_get(columnar)
        first = time.perf_counter() - began
        taken = in_turns({"columns": lambda: put_get(columnar), "copies": copies}, rounds)
        # each alone, as the peers are measured in their own process
        taken |= in_turns({"rows": lambda: put_get(LooseBatch.of(RECORD, rows))}, rounds)
        taken |= in_turns({"dense": lambda: put_get(whole)}, rounds)
        alone = _get_alone(whole)
        for socket in (handles, echo):
            socket.close(0)
    context.term()
    return HostFigures(
        {name: min(times) for name, times in taken.items()},
        first,
        1.0 / ratio(taken, "columns", "copies"),
        alone,
    )


def _get_alone(batch: Batch) -> float:
    """Best seconds for getting a batch that is there already, its segment mapped."""
    segment, reader = Segment("bench-get", 1 << 26), Reader()
    handle = segment.try_write(batch)
    assert handle is not None
    times = []
    for _ in range(50):
        began = time.perf_counter()
        reader.open(handle)
        times.append(time.perf_counter() - began)
    return min(times)
