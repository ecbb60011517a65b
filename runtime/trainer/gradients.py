"""Gradients of a part of a step, from its units to one sum.

By default they are added in place as they come, and over ranks with one all-reduce. In exact mode
each unit's gradient is computed from zero and kept; the units are then added in a fixed pairwise
tree over their order, so that the sum's bits do not depend on who computed which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.trainer.collective import Collective
from flowgraph.runtime.trainer.flat_parameters import FlatParameters


class Gradients:
    """Collects what backward passes add to the flat gradient, one part of a step at a time.

    Law: every unit's contribution is in the sum exactly once, or an error is raised.
    """

    def __init__(self, flat: FlatParameters, *, exact: bool, tasks: Sequence[str]) -> None:
        """tasks: names in the order in which contributions of one unit are added."""
        self._flat = flat
        self._exact = exact
        self._rank_of = {name: index for index, name in enumerate(tasks)}
        self._part: tuple[int, int] | None = None
        self._kept: dict[int, dict[int, Tensor]] = {}

    @contextmanager
    def collecting(self, task: str, units: Sequence[int], part: tuple[int, int]) -> Iterator[None]:
        """Backward passes inside the block belong to `task` on `units` of `part` (step, part).

        In exact mode one unit at a time.
        """
        self._open(part)
        if not self._exact:
            yield
            return
        if len(units) != 1:
            raise InternalError(f"task '{task}': exact mode takes units alone, got {len(units)}")
        kept = self._kept.setdefault(units[0], {})
        if self._rank_of[task] in kept:
            raise InternalError(f"task '{task}': unit {units[0]} has a gradient already")
        self._flat.gradient.zero_()
        yield
        kept[self._rank_of[task]] = self._flat.gradient.clone()

    def reduce(self, owners: Sequence[tuple[int, int]], collective: Collective) -> Tensor:
        """The sum over all units and ranks, in the flat gradient; collecting starts anew.

        owners: see `UpdateOrder`. Raises InternalError when a kept unit is not among them.
        """
        if self._exact:
            strangers = sorted(self._kept.keys() - {unit for unit, _ in owners})
            if strangers or len({unit for unit, _ in owners}) != len(owners):
                raise InternalError(f"owners miss units {strangers} or name one twice: {owners}")
            add_pairwise(self._leaves(owners, collective), out=self._flat.gradient)
        else:
            if self._part is None:
                self._flat.gradient.zero_()
            collective.all_reduce(self._flat.gradient)
        self.discard()
        return self._flat.gradient

    def discard(self) -> None:
        """Forget the part. The buffer keeps the last sum until something is collected."""
        self._part = None
        self._kept.clear()

    def _open(self, part: tuple[int, int]) -> None:
        if self._part is None:
            self._part = part
            if not self._exact:
                self._flat.gradient.zero_()
        elif self._part != part:
            raise InternalError(
                f"gradients of step and part {part} came before the update of {self._part}"
            )

    def _leaves(
        self, owners: Sequence[tuple[int, int]], collective: Collective
    ) -> Iterator[Tensor]:
        """Each unit's gradient on every rank, in unit order; the caller may write to them."""
        for unit, owner in owners:
            if owner != collective.rank:
                leaf = self._flat.new_buffer()
            else:
                parts = self._kept.pop(unit, {})
                # A unit whose rows reached nothing (no image in it) adds an explicit zero.
                leaf = parts.pop(min(parts)) if parts else self._flat.new_buffer().zero_()
                for index in sorted(parts):
                    leaf.add_(parts[index])
            collective.broadcast(leaf, owner)
            yield leaf


def add_pairwise(leaves: Iterable[Tensor], *, out: Tensor) -> None:
    """Writes the sum of the leaves to `out`, adding in a tree that only their number decides.

    Leaf 0 is added to 1, 2 to 3, then the pairs, and so on; what is left over at the end is added
    from the right. Leaves are overwritten. At most 1 + log2(number) buffers are alive.
    """
    stack: list[tuple[int, Tensor]] = []
    for leaf in leaves:
        level, total = 0, leaf
        while stack and stack[-1][0] == level:
            total = stack.pop()[1].add_(total)
            level += 1
        stack.append((level, total))
    if not stack:
        out.zero_()
        return
    total = stack.pop()[1]
    while stack:
        total = stack.pop()[1].add_(total)
    out.copy_(total)
