"""Decisions that the planner, the runtime and the simulator share: pure, numpy only.

Names load when first used: the compiler needs the model of time, and no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowgraph.runtime.policy.admit import OverLong, OverLongError
    from flowgraph.runtime.policy.cost import Cost
    from flowgraph.runtime.policy.dealing import (
        FILLER,
        Deal,
        Remainder,
        deal,
        deal_packs,
        heaviest_bound,
    )
    from flowgraph.runtime.policy.online import OnlinePacker
    from flowgraph.runtime.policy.pack import pack_lengths
    from flowgraph.runtime.policy.packs import Cut, Dropped, Packs
    from flowgraph.runtime.policy.row_length import MASKED_ROW, pack_cheapest, runs_of
    from flowgraph.runtime.policy.spreading import spread
    from flowgraph.runtime.policy.window import Held, WindowPacker

__all__ = [
    "FILLER",
    "MASKED_ROW",
    "Cost",
    "Cut",
    "Deal",
    "Dropped",
    "Held",
    "OnlinePacker",
    "OverLong",
    "OverLongError",
    "Packs",
    "Remainder",
    "WindowPacker",
    "deal",
    "deal_packs",
    "heaviest_bound",
    "pack_cheapest",
    "pack_lengths",
    "runs_of",
    "spread",
]

_WHERE = {
    "admit": ("OverLong", "OverLongError"),
    "cost": ("Cost",),
    "dealing": ("FILLER", "Deal", "Remainder", "deal", "deal_packs", "heaviest_bound"),
    "online": ("OnlinePacker",),
    "pack": ("pack_lengths",),
    "packs": ("Cut", "Dropped", "Packs"),
    "row_length": ("MASKED_ROW", "pack_cheapest", "runs_of"),
    "spreading": ("spread",),
    "window": ("Held", "WindowPacker"),
}
_FILE = {name: file for file, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _FILE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILE[name]}"), name)
