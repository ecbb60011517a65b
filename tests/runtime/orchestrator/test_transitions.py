"""States change as the table allows; anything else is our bug, and names both."""

import enum

import pytest

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.orchestrator.records import ChannelPhase
from flowgraph.runtime.orchestrator.state import (
    ModulePhase,
    Phase,
    RunPhase,
    UnitStatus,
    WorkerPhase,
)
from flowgraph.runtime.orchestrator.transitions import ALLOWED, advance

KINDS: tuple[type[enum.Enum], ...] = (
    WorkerPhase,
    UnitStatus,
    ChannelPhase,
    Phase,
    ModulePhase,
    RunPhase,
)
PAIRS = [(before, after) for kind in KINDS for before in kind for after in kind]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_transition_is_made_or_refused_with_both_names(
    before: enum.Enum, after: enum.Enum
) -> None:
    if after in ALLOWED[before]:
        assert advance("it", before, after) is after
        return
    with pytest.raises(InternalError, match=f"it cannot go from {before.name} to {after.name}"):
        advance("it", before, after)


def test_the_table_knows_every_state_and_leads_to_no_other_kind() -> None:
    assert set(ALLOWED) == {state for kind in KINDS for state in kind}
    for before, following in ALLOWED.items():
        assert all(type(after) is type(before) for after in following)


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (WorkerPhase.STARTING, WorkerPhase),
        (UnitStatus.WAITING, UnitStatus),
        (ChannelPhase.OPEN, ChannelPhase),
        (Phase.AHEAD, Phase),
        (ModulePhase.CURRENT, ModulePhase),
        (RunPhase.STARTING, RunPhase),
    ],
)
def test_every_state_can_be_reached(start: enum.Enum, kind: type[enum.Enum]) -> None:
    seen, new = {start}, {start}
    while new:
        new = {after for before in new for after in ALLOWED[before]} - seen
        seen |= new
    assert seen == set(kind)
