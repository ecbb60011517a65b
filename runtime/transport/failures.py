"""How moving records fails. All are `RunFailed`: something that ran, ran into something."""

from flowgraph.ir.errors import RunFailed


class PeerLost(RunFailed):
    """Nothing came from the other side for as long as a fetch waits.

    You get it when a process or its network is gone, or stopped; not for a slow one that still
    sends. It says from whom, which block, and how much of it had come.
    """


class FetchRefused(RunFailed):
    """The other side answered that it does not have the block: freed, or its owner is gone."""


class BlockCorrupt(RunFailed):
    """A block's bytes were not what its owner's digests say, again after being sent again."""


class TransferCancelled(RunFailed):
    """The other side of a device transfer ended before it began; nothing was sent."""


class BlockUnreachable(RunFailed):
    """A worker could not read a block of another node.

    You get it when that node's porter is gone for longer than a fetch waits, or has not the block:
    the worker ends, counts as lost, and is replaced as any lost one. The cause is its `__cause__`.
    """
