"""What one worker process is told when it starts: plain data, JSON on the way."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """name: `<group>-<index>`. plan: path of the plan's binary file. endpoint: the orchestrator's.

    keys: its key file when the endpoint is tcp, or empty.
    restore: folder of the checkpoint to go on from, or empty.
    log: file for standard output and error. scratch: private folder for rendezvous files.
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

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "WorkerSpec":
        return cls(**plain)
