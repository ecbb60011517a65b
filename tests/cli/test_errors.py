"""How errors are told: in a few lines, with the exit status that says whose fault it is."""

import pytest

from flowgraph.cli.errors import tell
from flowgraph.ir.errors import (
    ConfigurationError,
    FlowgraphError,
    GraphError,
    InternalError,
    PlanError,
    RunFailed,
)
from flowgraph.ir.location import Location
from flowgraph.runtime.failures import StageFailed

Capture = pytest.CaptureFixture[str]
BUG = "  this is a bug in flowgraph: please report it, with what -v shows"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (GraphError("x"), 2),
        (ConfigurationError("x"), 2),
        (PlanError("x"), 2),
        (RunFailed("x"), 1),
        (StageFailed("play", 3, "x"), 1),
        (OSError(28, "No space left on device"), 1),
        (InternalError("x"), 70),
        (ValueError("x"), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_exit_status_says_whose_fault_it_is(error: Exception, status: int) -> None:
    assert tell(error, verbose=False) == status


def test_an_error_is_its_place_what_and_what_to_do_then_its_notes(capsys: Capture) -> None:
    error = GraphError("stage 'a' is odd", at=Location("g.py", 7), hint="make it even")
    error.add_note("log: r/logs/host-0.log")
    tell(error, verbose=False)
    assert capsys.readouterr().err.splitlines() == [
        "error: g.py:7:",
        "  stage 'a' is odd",
        "  try: make it even",
        "  log: r/logs/host-0.log",
    ]


@pytest.mark.parametrize("error", [ValueError("x"), InternalError("x")], ids=["python", "ours"])
def test_our_bugs_say_that_they_are_ours(error: Exception, capsys: Capture) -> None:
    tell(error, verbose=False)
    assert capsys.readouterr().err.splitlines()[-1] == BUG


def test_a_worker_s_own_traceback_is_the_one_shown(capsys: Capture) -> None:
    error: FlowgraphError = StageFailed("play", 3, "boom", trace="Traceback: the user's line\n")
    tell(error, verbose=True)
    assert capsys.readouterr().err.startswith("Traceback: the user's line\n\nerror: ")
