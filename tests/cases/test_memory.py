"""Case F6: an edge with a byte budget, and a producer ten times as fast as its consumer.

Real processes, measured by the kernel's own figures. Items are 4 MiB here, in place of 100.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flowgraph.runtime.pool import Handle, Reader, new_spill
from tests.runtime.pool_process import from_line

MIB = 1 << 20
ITEM = 4 * MIB
BUDGET = 18 * MIB
ITEMS = 30
SLACK = 3 * MIB
"""What the interpreter itself may take in the meantime."""


@dataclass(slots=True)
class Producer:
    """The other process, its output read one line at a time."""

    process: subprocess.Popen[str]
    anonymous: int  # bytes of its own, before the first item
    files_mapped: int  # bytes of libraries and the like, then
    waits: int = 0
    sent: int = 0
    peak: int = 0
    spilled: int = 0
    mapped: int = 0
    files: set[int] = field(default_factory=set)

    def next(self) -> Handle | None:
        """The next item's handle; None when it waits for room."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line == "full\n":
            self.waits += 1
            return None
        handle = from_line(line)
        self.sent += 1
        self.files.add(handle.fd)
        self._measure()
        return handle

    def free(self, handle: Handle) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{handle.offset} {handle.generation}\n")
        self.process.stdin.flush()

    def _measure(self) -> None:
        memory = disk = 0
        for fd in self.files:
            path = f"/proc/{self.process.pid}/fd/{fd}"
            size = os.stat(path).st_blocks * 512
            if os.readlink(path).startswith("/memfd:"):
                memory += size
            else:
                disk += size
        self.peak = max(self.peak, memory + _resident(self.process.pid, "Anon") - self.anonymous)
        self.spilled = max(self.spilled, disk)
        mapped = _resident(self.process.pid, "File") - self.files_mapped
        self.mapped = max(self.mapped, mapped)


def _resident(pid: int, kind: str) -> int:
    """Bytes of a process's memory: `Anon`, its own; `File`, of mapped files."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"Rss{kind}:"))
    return int(line.split()[1]) * 1024


@contextmanager
def producer(folder: Path, spill: int = 0) -> Iterator[Producer]:
    arguments = map(str, (ITEMS, ITEM, BUDGET, spill, folder))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cases.memory_process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    try:
        yield Producer(process, _resident(process.pid, "Anon"), _resident(process.pid, "File"))
    finally:
        process.kill()
        process.communicate()


def consumed(made: Producer) -> list[int]:
    """Take one item for every ten that the producer could make; what each of them said."""
    reader = Reader()
    waiting: list[Handle] = []
    seen: list[int] = []
    while len(seen) < ITEMS:
        for _ in range(10):
            if made.sent == ITEMS:
                break
            handle = made.next()
            if handle is None:
                break
            waiting.append(handle)
        oldest = waiting.pop(0)
        values = reader.open(oldest)["x"].values
        assert values.min() == values.max()
        seen.append(int(values[0, 0]))
        made.free(oldest)
    return seen


def test_f6_memory_stays_within_the_budget_and_one_item_while_the_producer_waits(
    tmp_path: Path,
) -> None:
    with producer(tmp_path) as made:
        assert consumed(made) == list(range(ITEMS))
    assert made.waits > ITEMS / 2
    assert ITEM < made.peak <= BUDGET + ITEM + SLACK


def test_f6_what_finds_no_room_goes_to_disk_up_to_its_own_maximum(tmp_path: Path) -> None:
    most = 34 * MIB
    with producer(tmp_path, most) as made:
        assert consumed(made) == list(range(ITEMS))
        assert list(tmp_path.iterdir()) == []  # it has no name
    assert made.waits
    assert ITEM < made.spilled <= most + MIB  # what the file system needs for itself
    assert made.mapped <= ITEM + SLACK  # the file's pages are the system's, not the worker's
    assert made.peak <= BUDGET + ITEM + SLACK


def test_spilled_blocks_outlive_a_killed_producer_for_who_reads_them_and_nothing_stays_behind(
    tmp_path: Path,
) -> None:
    reader = Reader()
    with producer(tmp_path, ITEM * 4) as made:
        handles = []
        while (handle := made.next()) is not None:
            handles.append(handle)
        batches = [reader.open(handle) for handle in handles]
        assert len(made.files) == 2
    assert [int(batch["x"].values.max()) for batch in batches] == list(range(len(handles)))
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_to_write_spilling_says_so() -> None:
    with pytest.raises(OSError, match="No such file"):
        new_spill("/nowhere/at/all", MIB)
