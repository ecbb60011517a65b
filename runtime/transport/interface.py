"""What every transport does, whatever lies between the two sides.

A record batch is `put` where it was made, its `Address` travels with the orchestrator's messages,
and whoever it is for `get`s it. Law 4: a transport never takes more than its budget; without room
`put` answers None and the producer waits for a `free`. Nothing is dropped for space.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.wire_types import BadMessage, checker

KINDS = ("in-process", "shared-memory", "zeromq", "device-ipc", "device-collective")
"""As a plan's channels name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a batch can be had: plain data.

    kind: the transport's. owner: the worker that put it. endpoint: its server, for `zeromq`.
    block: the transport's own words; a pool handle's plain form for host memory.
    """

    kind: str
    owner: str
    endpoint: str
    block: tuple[Any, ...]

    def to_plain(self) -> tuple[Any, ...]:
        return (self.kind, self.owner, self.endpoint, self.block)

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> "Address":
        """Raises BadMessage when it is not what `to_plain` gave."""
        if not _ADDRESS(plain) or plain[0] not in KINDS:
            raise BadMessage("not a record batch's address")
        kind, owner, endpoint, block = plain
        return cls(kind=kind, owner=owner, endpoint=endpoint, block=block)


_ADDRESS = checker(tuple[str, str, str, tuple[Any, ...]])


class Transport(Protocol):
    """One worker's end of a transport, for putting and for getting."""

    kind: str

    def put(self, batch: Batch, stream: str = "") -> Address | None:
        """Keep the batch for its readers; None when there is no room now.

        Raises BlockTooLarge when there never will be.
        """
        ...

    def get(self, address: Address) -> Batch:
        """The batch, read-only. Returns or raises a RunFailed within a stated time."""
        ...

    def done(self, address: Address) -> None:
        """This reader's copy, if it needed one, is not read any more."""
        ...

    def free(self, address: Address) -> None:
        """The owner ends the batch: all readers are done. Raises StaleHandle when it is over."""
        ...

    def close(self) -> None:
        """Let go of everything; batches that were got over memory of this machine stay."""
        ...
