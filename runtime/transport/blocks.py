"""Blocks that a server may send: opened from the pool, with the digests of their chunks."""

from collections import OrderedDict

from flowgraph.runtime.pool import Handle, Reader
from flowgraph.runtime.transport.chunks import digests

REMEMBERED = 4096
"""Blocks whose digests are kept; a forgotten one is digested anew."""


class PoolBlocks:
    """Any process's blocks of this machine. Digests are made once, when put or at the first fetch.

    Made at put (`note`), they cost nothing at send, and cover the wire and this machine's memory.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._digests: OrderedDict[tuple[int, int, int, int], bytes] = OrderedDict()

    def memory(self, handle: Handle) -> memoryview:
        """Raises StaleHandle or OwnerGone."""
        return self._reader.memory(handle)

    def check(self, handle: Handle) -> None:
        """Raises StaleHandle when the block was freed since `memory` gave it."""
        self._reader.memory(handle)

    def digests(self, handle: Handle) -> bytes:
        """Of all chunks; raises what `memory` does."""
        found = self._digests.get(_key(handle))
        return self.note(handle) if found is None else found

    def note(self, handle: Handle) -> bytes:
        """Make and keep the digests now. Raises what `memory` does."""
        made = digests(self._reader.memory(handle))
        self._digests[_key(handle)] = made
        if len(self._digests) > REMEMBERED:
            self._digests.popitem(last=False)
        return made

    def let_go(self) -> None:
        """Unmap everything: what a lost process left must not stay for its porter's sake."""
        self._reader = Reader()

    def forget(self, handle: Handle) -> None:
        """The block ended."""
        self._digests.pop(_key(handle), None)


def _key(handle: Handle) -> tuple[int, int, int, int]:
    return (handle.pid, handle.fd, handle.offset, handle.generation)
