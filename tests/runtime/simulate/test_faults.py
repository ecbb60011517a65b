"""Faults as data: what a file may say, and what a connection never does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.simulate.faults import Fault, Faults, read_faults

WORKERS = ("host-0", "lm.gang-0")


def test_a_list_of_faults_is_read() -> None:
    data = {"seed": 3, "faults": [{"kind": "slow", "worker": "host-0", "factor": 2}]}
    assert read_faults(data, WORKERS, "f.yaml") == Faults(
        (Fault(kind="slow", worker="host-0", factor=2.0),), 3
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("slow", "expects a list of faults, got str"),
        ({"fault": []}, "unknown key 'fault'"),
        ([3], "fault 0: expects a mapping, got 3"),
        ([{"kind": "slwo"}], "fault 0: kind is 'slwo'"),
        ([{"kind": "slow", "wroker": "x"}], "fault 0: unknown key 'wroker'"),
        ([{"kind": "slow", "worker": "host-7"}], "the plan has no worker 'host-7'"),
        ([{"kind": "slow", "factor": -1}], "factor is -1"),
        ([{"kind": "slow", "factor": 0}], "factor 0 would be no work"),
        ([{"kind": "crash", "start_s": "soon"}], "start_s is 'soon'"),
        ([{"kind": "partition"}], "give end_s"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"f\.yaml") as refused:
        read_faults(data, WORKERS, "f.yaml")
    assert message in str(refused.value)


def test_a_fault_bears_on_its_worker_in_its_time_only() -> None:
    faults = Faults((Fault(kind="slow", worker="host-0", factor=5.0, start_s=1.0, end_s=2.0),))
    assert [faults.slowness("host-0", now) for now in (0.5, 1.0, 1.9, 2.0)] == [1.0, 5.0, 5.0, 1.0]
    assert faults.slowness("lm.gang-0", 1.5) == 1.0


def test_a_partition_holds_messages_until_it_is_over() -> None:
    faults = Faults((Fault(kind="partition", worker="host-0", start_s=1.0, end_s=4.0),))
    assert faults.arrival("host-0", "up", 0, 2.0, 0.1) == 4.0
    assert faults.arrival("host-0", "up", 1, 4.5, 0.1) == 4.6


@given(number=st.integers(0, 1000), sent=st.floats(0, 100))
def test_a_delay_is_chosen_by_the_message_and_within_its_bound(number: int, sent: float) -> None:
    faults = Faults((Fault(kind="delay", seconds=2.0),), seed=1)
    time = faults.arrival("host-0", "down", number, sent, 0.5)
    assert sent + 0.5 <= time <= sent + 2.5
    assert time == faults.arrival("host-0", "down", number, sent, 0.5)
