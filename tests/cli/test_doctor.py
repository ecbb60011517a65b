"""The doctor: a sound machine passes, and what is broken is told with its cure."""

from functools import partial

import pytest

from flowgraph.cli.doctor import checks
from flowgraph.cli.doctor.checks import check_packages, check_probe
from flowgraph.cli.doctor.probes import PROBES, shared_memory, zmq
from tests.cli.commands import call


def test_cheap_probes_find_this_machine_sound() -> None:
    assert shared_memory() == "another process reads what this one wrote"
    assert "carries messages over ipc" in zmq()


@pytest.mark.parametrize("name", ["HiGHS", "PULP_CBC_CMD"])
def test_both_solvers_solve(name: str) -> None:
    assert PROBES["solver"](name) == "solves a small program"


def test_a_probe_that_raises_is_a_finding_with_its_last_line_and_a_cure() -> None:
    found = check_probe("torch", "no-such-probe", cure="install it")
    assert not found.ok
    assert found.text == "KeyError: 'no-such-probe'"
    assert found.cure == "install it"


def test_what_the_distribution_requires_is_there() -> None:
    assert check_packages().ok


def test_a_problem_is_told_with_what_to_do_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = partial(check_probe, "gloo", "no-such-probe", cure="mend it")
    monkeypatch.setattr(checks, "CHECKS", (checks.check_python, broken))
    outcome = call(capsys, "doctor")
    assert outcome.status == 1
    assert [line.split() for line in outcome.out.splitlines()][1:] == [
        ["gloo", "PROBLEM", "KeyError:", "'no-such-probe'"],
        ["do:", "mend", "it"],
        ["1", "of", "2", "checks", "found", "a", "problem"],
    ]


@pytest.mark.slow
def test_this_machine_passes_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = call(capsys, "doctor")
    assert outcome.status == 0, outcome.out
    assert outcome.out.count(" ok ") == len(checks.CHECKS)
