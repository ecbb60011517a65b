"""Tensors in device memory that other processes look at: who still needs which.

The driver keeps an exported allocation valid only while the exporter holds it, and gives no word
when a reader dies. So the owner keeps a tensor until each reader it was offered to has said that it
is done, or is known to be gone.

    OFFERED ── opened ──▶ OPENED ── closed ──▶ CLOSED     (any ── lost ──▶ CLOSED)

A state machine for one owner; no device, no sockets. Law: offered == closed + held.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from flowgraph.runtime.failures import StaleHandle


class Reading(Enum):
    OFFERED = "offered"
    OPENED = "opened"
    CLOSED = "closed"


ALLOWED = {
    Reading.OFFERED: (Reading.OPENED, Reading.CLOSED),
    Reading.OPENED: (Reading.CLOSED,),
    Reading.CLOSED: (),
}


@dataclass(slots=True)
class _Export:
    nbytes: int
    readers: dict[str, Reading] = field(default_factory=dict)


class DeviceLedger:
    """budget: bytes of device memory that may be out at a time."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._exports: dict[int, _Export] = {}
        self._next = 0

    @property
    def used(self) -> int:
        return sum(export.nbytes for export in self._exports.values())

    def offer(self, nbytes: int, readers: Iterable[str]) -> int | None:
        """A number for the tensor, which must now be held; None when there is no room now."""
        if self.used + nbytes > self._budget:
            return None
        number, self._next = self._next, self._next + 1
        self._exports[number] = _Export(nbytes, dict.fromkeys(readers, Reading.OFFERED))
        return number

    def move(self, number: int, reader: str, to: Reading) -> bool:
        """A reader's word. True when the tensor may be let go now. A closed one is closed twice
        without harm (a death and a last message cross). Raises StaleHandle for what never was."""
        if number >= self._next:
            raise StaleHandle(f"device tensor {number} was never offered")
        export = self._exports.get(number)
        if export is None:
            return False
        now = export.readers.get(reader)
        if now is None:
            raise StaleHandle(f"device tensor {number} was not offered to '{reader}'")
        if to in ALLOWED[now]:
            export.readers[reader] = to
        return self._release(number)

    def lost(self, reader: str) -> list[int]:
        """A reader is gone: the numbers of tensors that may be let go now."""
        freed = []
        for number in [n for n, export in self._exports.items() if reader in export.readers]:
            self._exports[number].readers[reader] = Reading.CLOSED
            if self._release(number):
                freed.append(number)
        return freed

    def _release(self, number: int) -> bool:
        if any(state is not Reading.CLOSED for state in self._exports[number].readers.values()):
            return False
        del self._exports[number]
        return True
