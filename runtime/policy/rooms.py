"""Open packs by free room, of tokens and of visual tokens: who is the tightest that fits both?

A max-tree over the token rooms 0..cap: the leaf of a room holds the largest visual room of the
packs that have exactly this token room. Finding the smallest token room >= l whose visual room is
>= v takes O(log cap), whatever the number of open packs; a scan from the tightest pack upward is
quadratic as soon as the visual cap binds, since packs full of images with token room left pile up
in front.
"""

from bisect import bisect_left, insort

EMPTY = -1  # less than any need, so that an empty room matches none


class RoomTree:
    """Set of open packs. Memory: O(cap + packs)."""

    __slots__ = ("_leaves", "_packs", "_stride", "_tree")

    def __init__(self, cap: int, packs: int) -> None:
        """cap: the largest token room; packs: an exclusive bound on pack numbers."""
        self._leaves = 1 << cap.bit_length()
        self._tree = [EMPTY] * (2 * self._leaves)
        self._packs: dict[int, list[int]] = {}  # token room -> visual room * stride + pack, sorted
        self._stride = packs

    def add(self, pack: int, room: int, visual_room: int) -> None:
        """Open a pack, or put one back with its new rooms."""
        entry = visual_room * self._stride + pack
        here = self._packs.get(room)
        if here:
            insort(here, entry)
            visual_room = here[-1] // self._stride
        else:
            self._packs[room] = [entry]
        self._set(room, visual_room)

    def take(self, length: int, need: int) -> tuple[int, int, int] | None:
        """Remove the tightest pack that fits: (pack, token room, visual room), or None.

        Tightest by tokens, then by visual tokens, then the lowest number.
        """
        room = self._find(length, need)
        if room < 0:
            return None
        here = self._packs[room]
        visual_room, pack = divmod(here.pop(bisect_left(here, need * self._stride)), self._stride)
        self._set(room, here[-1] // self._stride if here else EMPTY)
        return pack, room, visual_room

    def _find(self, length: int, need: int) -> int:
        """The smallest token room >= length with a visual room >= need, or -1."""
        tree, leaves = self._tree, self._leaves
        node = leaves + length
        while tree[node] < need:
            while node & 1:
                node >>= 1
            if not node:
                return -1
            node += 1
        while node < leaves:
            node *= 2
            if tree[node] < need:
                node += 1
        return node - leaves

    def _set(self, room: int, visual_room: int) -> None:
        tree = self._tree
        node = self._leaves + room
        tree[node] = visual_room
        while node > 1:
            parent = node >> 1
            largest = max(tree[node], tree[node ^ 1])
            if tree[parent] == largest:
                return
            tree[parent] = largest
            node = parent
