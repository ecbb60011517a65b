"""What every packing plan owes its caller, checked in one place, and the least number of packs."""

from collections.abc import Sequence

import numpy as np

from flowgraph.runtime.policy import Packs


def check_caps(packs: Packs) -> None:
    """No pack is empty, none exceeds a cap, boundaries cover the pieces."""
    assert packs.boundaries[0] == 0
    assert packs.boundaries[-1] == packs.order.size
    assert (np.diff(packs.boundaries) > 0).all()
    assert (packs.tokens <= packs.cap).all()
    if packs.second_cap is not None:
        assert (packs.sums(packs.second) <= packs.second_cap).all()


def check_whole(plans: Sequence[Packs], lengths: Sequence[int]) -> None:
    """Over all plans, every sample is in exactly one piece of its whole length."""
    for packs in plans:
        check_caps(packs)
    order = np.concatenate([packs.order for packs in plans])
    held = np.concatenate([packs.lengths for packs in plans])
    assert sorted(order.tolist()) == list(range(len(lengths)))
    assert held.tolist() == [lengths[sample] for sample in order.tolist()]


def fewest_packs(sizes: Sequence[tuple[int, int]], cap: int, second_cap: int) -> int:
    """Brute force: the least number of packs for (tokens, visual tokens) pairs."""

    def place(at: int, rooms: tuple[tuple[int, int], ...], best: int) -> int:
        if len(rooms) >= best:
            return best
        if at == len(sizes):
            return len(rooms)
        length, visual = sizes[at]
        for pack, (room, visual_room) in enumerate(rooms):
            if length <= room and visual <= visual_room:
                filled = (room - length, visual_room - visual)
                best = place(at + 1, (*rooms[:pack], filled, *rooms[pack + 1 :]), best)
        return place(at + 1, (*rooms, (cap - length, second_cap - visual)), best)

    return place(0, (), len(sizes) + 1) if sizes else 0
