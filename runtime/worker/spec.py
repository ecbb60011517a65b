"""What one worker process is told when it starts: plain data, JSON on the way."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flowgraph.runtime.incarnation import token_of

UNREACHABLE = 75
"""Exit status of a worker that could not read another node's block (EX_TEMPFAIL)."""

ORPHANED = 76
"""Exit status of a worker that found a process gone whose records it was to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """name: `<group>-<index>`. plan: path of the plan's binary file. endpoint: the orchestrator's.

    keys: its key file when the endpoint is tcp, or empty.
    restore: folder of the checkpoint to go on from, or empty.
    retries: how often a stage worker tries work again in which the user's code raised.
    beat_s: seconds between two signs of life; 0: none.
    log: file for standard output and error. scratch: private folder for rendezvous files.
    incarnation: how often the worker's process was replaced before this one.
    pool_bytes: budget of its segment; pool_fd, pool_pid: its memory, which the process that
    started it keeps for readers (see `Segment`). spill_bytes, spill_dir, spill_fd: the same on disk
    for what finds no room; 0: none.
    node: where it runs. porters: by node, where blocks of other nodes can be had, with the key file
    `block_keys`; empty when all processes are on one node. fetch_s: how long a fetch may make no
    progress.
    """

    name: str
    group: str
    index: int
    plan: str
    endpoint: str
    log: str
    scratch: str
    run_dir: str
    steps: int
    exact: bool
    record: bool
    restore: str = ""
    keys: str = ""
    incarnation: int = 0
    pool_bytes: int = 1 << 12
    pool_fd: int = -1
    pool_pid: int = 0
    spill_bytes: int = 0
    spill_dir: str = ""
    spill_fd: int = -1
    node: str = ""
    porters: Mapping[str, str] = field(default_factory=dict)
    block_keys: str = ""
    fetch_s: float = 20.0
    beat_s: float = 0.0
    retries: int = 0

    @property
    def token(self) -> str:
        """This process's name for calls, blocks and connections."""
        return token_of(self.name, self.incarnation)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "WorkerSpec":
        return cls(**plain)
