"""Reading samples by id. A sample's id is its position in the source's endless order."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from flowgraph.ir.errors import FlowgraphError
from flowgraph.runtime.randomness import key, order

SNAPSHOT_EVERY = 64
"""Records between two stored positions of an iterable source: what a step back costs at most."""

SNAPSHOTS = 256
"""Stored positions kept, besides the start."""


@runtime_checkable
class Resumable(Protocol):
    """An iterable whose position can be stored: plain data out, plain data in."""

    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> None: ...


class EndOfSource(FlowgraphError):
    """A sample id beyond the last sample of a source that does not loop."""


class Reader(Protocol):
    """What a source's function gave, read by sample id."""

    size: int  # samples an epoch, or -1 while unknown

    def read(self, sample: int) -> Any:
        """The record of that id. Raises EndOfSource."""
        ...

    def measure(self) -> None:
        """Sets `size`, reading to the end once when need be."""
        ...


def reader(make: Callable[[], Any], *, loop: bool, shuffle: bool, seed: int) -> Reader:
    """A reader of whatever the source's function returns.

    seed: of the order, when shuffled. Raises FlowgraphError when it is neither a sequence nor an
    iterable with state_dict and load_state_dict, when it is empty, or when an iterable is shuffled.
    """
    made = make()
    if hasattr(made, "__len__") and hasattr(made, "__getitem__"):
        return SequenceReader(made, loop=loop, shuffle=shuffle, seed=seed)
    if not isinstance(made, Resumable):
        raise FlowgraphError(
            f"the source's function returned {type(made).__name__}, which is neither a sequence "
            "nor an iterable with state_dict and load_state_dict",
            hint="return a list, or an object with __len__ and __getitem__",
        )
    if shuffle:
        raise FlowgraphError(
            "an iterable is read in its own order and cannot be shuffled",
            hint="drop shuffle, or return a sequence",
        )
    return IterableReader(make, made, loop=loop)


class SequenceReader:
    """`id` -> `sequence[order(epoch)[id % size]]`, in any order of asking."""

    def __init__(self, sequence: Sequence[Any], *, loop: bool, shuffle: bool, seed: int) -> None:
        self.size = len(sequence)
        self._sequence = sequence
        self._loop = loop
        self._shuffle = shuffle
        self._seed = seed
        self._orders: dict[int, Any] = {}
        if self.size == 0:
            raise FlowgraphError("the source is empty")

    def read(self, sample: int) -> Any:
        epoch, place = divmod(sample, self.size)
        if epoch and not self._loop:
            raise _end(sample, self.size)
        return self._sequence[int(self._order(epoch)[place]) if self._shuffle else place]

    def measure(self) -> None:
        """Nothing to do: a sequence knows."""

    def _order(self, epoch: int) -> Any:
        if epoch not in self._orders:
            if len(self._orders) > 2:  # work straddles two epochs at most
                self._orders.clear()
            self._orders[epoch] = order(self._seed, epoch, self.size)
        return self._orders[epoch]


class IterableReader:
    """Reads forward; a step back starts again from the nearest stored position.

    `make` is called again for every start, so that no iterator's hidden state leaks between them.
    """

    def __init__(self, make: Callable[[], Any], first: Resumable, *, loop: bool) -> None:
        self.size = -1
        self._make = make
        self._loop = loop
        self._source = first
        self._states: dict[int, Any] = {0: first.state_dict()}
        self._records = iter(first)
        self._next = 0  # position in the epoch of the record that comes next
        self._last: tuple[int, Any] = (-1, None)

    def read(self, sample: int) -> Any:
        place = sample
        if self.size >= 0:
            place = self._wrapped(sample)
        if place == self._last[0]:
            return self._last[1]
        if place < self._next:
            self._back_to(max(at for at in self._states if at <= place))
        while self._next <= place:
            found = list(islice(self._records, 1))
            if not found:
                self._ended()
                return self.read(sample)
            self._last = (self._next, found[0])
            self._next += 1
            self._store()
        return self._last[1]

    def measure(self) -> None:
        """Reads on to the end, which must exist."""
        if self.size < 0:
            self._next += sum(1 for _ in self._records)
            self._last = (-1, None)
            self._ended()

    def _wrapped(self, sample: int) -> int:
        if sample >= self.size and not self._loop:
            raise _end(sample, self.size)
        return sample % self.size

    def _ended(self) -> None:
        self.size = self._next
        if self.size == 0:
            raise FlowgraphError("the source is empty")

    def _store(self) -> None:
        if self._next % SNAPSHOT_EVERY == 0 and self._next not in self._states:
            self._states[self._next] = self._source.state_dict()
            if len(self._states) > SNAPSHOTS + 1:
                del self._states[min(at for at in self._states if at)]

    def _back_to(self, place: int) -> None:
        self._source = self._make()
        self._source.load_state_dict(self._states[place])
        self._records = iter(self._source)
        self._next = place
        self._last = (-1, None)


def order_seed(run_seed: int, stage_seed: int) -> int:
    """Seed of a source's order: another run seed or another stage seed gives another order."""
    return int.from_bytes(key(run_seed, "source", stage_seed)[:8], "little") >> 1


def _end(sample: int, size: int) -> EndOfSource:
    return EndOfSource(f"sample {sample} is beyond the source's {size} samples")
