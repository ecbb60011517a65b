"""How a block is cut for the wire, and what proves that a piece arrived whole.

Chunks of 1 MiB: a single large frame is copied through memory that the cache cannot hold, and one
loopback connection carries half as much (see docs/transport.md). A digest is xxh3-128: it finds
damage and mix-ups at the speed of memory; it is no seal against a forger, which is CURVE's part.
"""

from collections.abc import Iterator

import xxhash

CHUNK = 1 << 20
"""Bytes of a chunk; the last one of a block may be shorter."""

DIGEST = 16
"""Bytes of a digest."""


def chunks_in(nbytes: int, chunk: int = CHUNK) -> int:
    """Chunks of a block; none for an empty one."""
    return -(-nbytes // chunk)


def span(index: int, nbytes: int, chunk: int = CHUNK) -> tuple[int, int]:
    """First and last + 1 byte of a chunk."""
    start = index * chunk
    return start, min(start + chunk, nbytes)


def digest(memory: memoryview) -> bytes:
    return xxhash.xxh3_128_digest(memory)


def digests(memory: memoryview, chunk: int = CHUNK) -> bytes:
    """The digests of all chunks, one after the other."""

    def each() -> Iterator[bytes]:
        for index in range(chunks_in(memory.nbytes, chunk)):
            start, stop = span(index, memory.nbytes, chunk)
            yield digest(memory[start:stop])

    return b"".join(each())
