"""Decisions that the planner, the runtime and the simulator share: pure, numpy only."""

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
from flowgraph.runtime.policy.spreading import spread
from flowgraph.runtime.policy.window import Held, WindowPacker

__all__ = [
    "FILLER",
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
    "pack_lengths",
    "spread",
]
