"""Online best-fit: each sample goes at once into the tightest open pack that has room for it.

Guarantees: at most `open_packs` packs are open; when no open pack fits and all are taken, the
fullest closes; a pack closes at the latest when `age_limit` samples have come after its first. The
same samples give the same packs, however they were cut into pushes. One sample costs a binary
search over the open packs; with a binding second cap, at worst one look at each of them.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowgraph.runtime.policy.admit import Limits, OverLong, admit
from flowgraph.runtime.policy.packs import Ints, Packs, grouped

Piece = tuple[int, int, int, int]  # sample, start, length, second
NUMBERS = 1 << 40  # exclusive bound of pack numbers, so that (room, pack) is one integer


class OnlinePacker:
    """Best-fit over a bounded set of open packs. Arrival order decides: declare it as a window."""

    def __init__(
        self,
        *,
        cap: int,
        second_cap: int | None = None,
        over_long: OverLong = "error",
        open_packs: int = 128,
        age_limit: int | None = None,
    ) -> None:
        """cap, second_cap: tokens and visual tokens a pack may hold; age_limit: in samples."""
        if open_packs < 1 or (age_limit is not None and age_limit < 1):
            raise ValueError(f"expects open_packs, age_limit >= 1, got {open_packs}, {age_limit}")
        self._limits = Limits(cap=cap, second_cap=second_cap, over_long=over_long)
        self._most = open_packs
        self._age_limit = age_limit
        self._pushed = 0
        self._opened = 0  # packs, so far: their numbers, and so ties, follow their age
        self._rooms: list[int] = []  # token room * NUMBERS + pack, sorted; one entry an open pack
        self._visual_room: dict[int, int] = {}
        self._pieces: dict[int, list[Piece]] = {}  # pack -> pieces, oldest pack first

    @property
    def pushed(self) -> int:
        """Samples pushed so far."""
        return self._pushed

    @property
    def open(self) -> Packs:
        """The open packs, oldest first. With `pushed` this is the packer's whole state."""
        return self._packs(list(self._pieces.values()))

    def resume(self, open_packs: Packs, *, pushed: int) -> None:
        """Go on exactly from another packer's `open` and `pushed`; only a fresh one may."""
        if self._pushed or len(open_packs) > self._most:
            raise ValueError("expects a fresh packer with room for the open packs")
        self._pushed = pushed
        columns = (open_packs.order, open_packs.starts, open_packs.lengths, open_packs.second)
        pieces: list[Piece] = list(zip(*(column.tolist() for column in columns), strict=True))
        for begin, end in pairwise(open_packs.boundaries.tolist()):
            mine = pieces[begin:end]
            pack = self._open()
            self._pieces[pack] = mine
            self._visual_room[pack] -= sum(piece[3] for piece in mine)
            insort(self._rooms, self._room(pack) * NUMBERS + pack)

    def push(
        self,
        lengths: ArrayLike,
        *,
        second: ArrayLike | None = None,
        ids: Sequence[object] | NDArray[np.generic] | None = None,
    ) -> Packs:
        """Place the samples in order; return the packs that closed. Arguments as pack_lengths."""
        new = admit(lengths, self._limits, second=second, ids=ids, first=self._pushed)
        self._pushed += np.asarray(lengths).size
        closed: list[list[Piece]] = []
        columns = (new.sample, new.start, new.length, new.second)
        for piece in zip(*(column.tolist() for column in columns), strict=True):
            self._place(piece, closed)
        return replace(self._packs(closed), dropped=new.dropped, cut=new.cut)

    def flush(self) -> Packs:
        """Close all open packs, oldest first."""
        closed: list[list[Piece]] = []
        for pack in list(self._pieces):
            self._close(pack, closed)
        self._rooms.clear()
        return self._packs(closed)

    def _place(self, piece: Piece, closed: list[list[Piece]]) -> None:
        sample, _, length, need = piece
        rooms = self._rooms
        if self._age_limit is not None:
            self._close_old(sample - self._age_limit, closed)
        at = bisect_left(rooms, length * NUMBERS)
        if self._limits.second_cap is not None:
            while at < len(rooms) and self._visual_room[rooms[at] % NUMBERS] < need:
                at += 1
        if at == len(rooms):
            if len(rooms) == self._most:
                self._close(rooms.pop(0) % NUMBERS, closed)
            room, pack = self._limits.cap, self._open()
        else:
            room, pack = divmod(rooms.pop(at), NUMBERS)
        self._pieces[pack].append(piece)
        self._visual_room[pack] -= need
        if room == length:
            self._close(pack, closed)
        else:
            insort(rooms, (room - length) * NUMBERS + pack)

    def _open(self) -> int:
        pack = self._opened
        self._opened += 1
        self._pieces[pack] = []
        self._visual_room[pack] = self._limits.second_cap or 0
        return pack

    def _room(self, pack: int) -> int:
        return self._limits.cap - sum(piece[2] for piece in self._pieces[pack])

    def _close_old(self, oldest: int, closed: list[list[Piece]]) -> None:
        """Close the packs whose first sample came at `oldest` or before."""
        while self._pieces:
            pack, pieces = next(iter(self._pieces.items()))
            if pieces[0][0] > oldest:
                return
            del self._rooms[bisect_left(self._rooms, self._room(pack) * NUMBERS + pack)]
            self._close(pack, closed)

    def _close(self, pack: int, closed: list[list[Piece]]) -> None:
        """Hand a pack out. Its entry in `rooms` is the caller's to remove."""
        closed.append(self._pieces.pop(pack))
        del self._visual_room[pack]

    def _packs(self, packs: list[list[Piece]]) -> Packs:
        rows = np.array([piece for pack in packs for piece in pack], np.int64).reshape(-1, 4)
        bins: Ints = np.repeat(np.arange(len(packs)), [len(pack) for pack in packs])
        sample, start, length, second = (np.ascontiguousarray(column) for column in rows.T)
        return grouped(
            bins,
            len(packs),
            (sample, start, length, second),
            cap=self._limits.cap,
            second_cap=self._limits.second_cap,
        )
