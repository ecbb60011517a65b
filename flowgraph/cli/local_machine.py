"""This machine as a cluster, told by the kernel; torch is not asked.

Workers compute on CPU cores: accelerators are listed by `doctor`, and a cluster file can plan for
some, but the detected cluster has none, since a plan for them would promise what a run on this
machine does not do.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from flowgraph.ir.cluster import Cluster, DeviceKind, Node

SLOTS = 16
"""Workers that may share a core: most of them wait for others at any time."""

_CGROUP = Path("/sys/fs/cgroup")
_UNKNOWN_MEMORY = 4 << 30


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device that the driver lists; memory in bytes."""

    name: str
    memory_bytes: int


def local_cluster() -> Cluster:
    """One node, whose devices are its cores, shared by up to `SLOTS` workers each."""
    cores = usable_cores()
    node = Node(
        name="local", device="core", devices=cores, cores=cores, memory_bytes=usable_memory()
    )
    return Cluster(
        name="this-machine",
        kinds=(DeviceKind(name="core", kind="cpu", slots=SLOTS),),
        nodes=(node,),
    )


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and its control group's quota."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def usable_memory() -> int:
    """Bytes of memory: the machine's, or the control group's limit if that is less."""
    lines = _read(Path("/proc/meminfo")).splitlines()
    totals = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")]
    limit = _read(_CGROUP / "memory.max").strip()
    if limit.isdecimal():
        totals.append(int(limit))
    return min(totals, default=_UNKNOWN_MEMORY)


def accelerators() -> list[Accelerator]:
    """NVIDIA devices, if a driver is loaded and its tool answers within 10 s."""
    tool = shutil.which("nvidia-smi")
    if tool is None or not Path("/proc/driver/nvidia").is_dir():
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (subprocess.SubprocessError, OSError):
        return []  # a driver that does not answer serves no run either
    pairs = (line.rpartition(",") for line in done.stdout.splitlines() if line.strip())
    return [Accelerator(name, int(size) << 20) for name, _, size in pairs if size.strip().isdigit()]


def _read(file: Path) -> str:
    """The file's text, or "" where this kernel has no such file."""
    try:
        return file.read_text()
    except OSError:
        return ""
