"""Which blocks a worker's items read, and which of them something looks at after that.

A view of a record (an array, a tensor, a slice of one) is the memory of who wrote it. The user's
code may keep one for as long as it likes: then its place must not be written anew.

Law: a block that an item reads is let go once: with the item, or, when it is looked at then, with
the last view of it.
"""

import gc
from collections.abc import Callable, Iterable

from flowgraph.runtime.messages import BlockName, PlainHandle

YOUNG = 1
"""Generation up to which garbage is searched at an item's end: what the item itself has made."""


def name_of(handle: PlainHandle) -> BlockName:
    """Which block it is, as messages name it."""
    owner, _, _, offset, _, generation, *_ = handle
    return owner, offset, generation


class Leases:
    """views: whether any view of a block is left."""

    def __init__(self, views: Callable[[BlockName], bool]) -> None:
        self._views = views
        self._items: dict[int, tuple[BlockName, ...]] = {}
        self._held: dict[BlockName, None] = {}  # in the order in which they were

    def __len__(self) -> int:
        """Items that have not ended."""
        return len(self._items)

    @property
    def holds(self) -> bool:
        """Whether there is anything for `gone` to look after."""
        return bool(self._held)

    def begin(self, item: int, blocks: Iterable[BlockName]) -> None:
        """The item will read these, beside those that were told before."""
        self._items[item] = (*self._items.get(item, ()), *blocks)

    def end(self, item: int) -> tuple[BlockName, ...]:
        """The item is over: those of its blocks that are held from now on.

        A block that another item reads here is that one's, one that is held already is told once.
        What hangs in a cycle of garbage is looked for first, among what is young.
        """
        found = self._looked_at(self._items.pop(item, ()))
        if found:
            gc.collect(YOUNG)
            found = self._looked_at(found)
            self._held.update(dict.fromkeys(found))
        return found

    def gone(self) -> tuple[BlockName, ...]:
        """Held blocks that nothing looks at any more; they are not held now."""
        gone = tuple(block for block in self._held if not self._views(block))
        for block in gone:
            del self._held[block]
        return gone

    def recalled(self) -> tuple[BlockName, ...]:
        """`gone` after a search of all garbage, which takes a tenth of a second or so."""
        gc.collect()
        return self.gone()

    def _looked_at(self, blocks: tuple[BlockName, ...]) -> tuple[BlockName, ...]:
        found = [block for block in blocks if self._views(block)]
        if not found:
            return ()
        others = {block for theirs in self._items.values() for block in theirs}
        return tuple(b for b in dict.fromkeys(found) if b not in others and b not in self._held)
