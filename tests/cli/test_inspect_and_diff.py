"""`inspect` and `diff`, driven as a shell would."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import COUNTING, call

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> str:
    """A plan of a small graph, in the present folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(COUNTING, tmp_path)
    call(capsys, "compile", "counting.py", "-o", "p.fgplan")
    return "p.fgplan"


def test_inspect_explains_in_words_and_offers_the_decisions(plan: str, capsys: Capture) -> None:
    told = call(capsys, "inspect", plan)
    assert told.status == 0
    assert told.out.startswith("counting, planned for this-machine: 1 node")
    for title in ("THE GRAPH", "WHERE A STEP'S TIME GOES", "WHO DOES WHAT", "WITH ONE DEVICE MORE"):
        assert title in told.out
    ledger = call(capsys, "inspect", plan, "--decisions").out
    assert "match-throughput\n" in ledger
    assert "estimate-costs\n" in ledger


def test_inspect_writes_a_page(plan: str, tmp_path: Path, capsys: Capture) -> None:
    told = call(capsys, "inspect", plan, "--html", "plan.html")
    assert (told.status, told.out) == (0, "page: plan.html\n")
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
    both = call(capsys, "inspect", "counting.py", "--html", "again.html", "--json")
    assert both.err == "page: again.html\n"
    assert json.loads(both.out)["graph"] == "counting"
    assert (tmp_path / "again.html").read_text() == (tmp_path / "plan.html").read_text()


def test_a_page_that_cannot_be_written_is_the_users_to_mend(plan: str, capsys: Capture) -> None:
    told = call(capsys, "inspect", plan, "--html", "no/such/folder.html")
    assert told.status == 2
    assert told.err.startswith("error: cannot write no/such/folder.html: No such file")


def test_inspect_prints_one_object_with_all_that_it_explains(plan: str, capsys: Capture) -> None:
    told = json.loads(call(capsys, "inspect", plan, "--json").out)
    assert {"step_s", "rate", "critical_path", "modules", "devices_used"} <= set(told)
    assert set(told["modules"]) == {"lm"}
    assert told["modules"]["lm"]["devices"] == told["devices_used"] == 1


def test_diff_of_a_plan_with_itself_says_so_and_succeeds(plan: str, capsys: Capture) -> None:
    told = call(capsys, "diff", plan, "counting.py")
    assert (told.status, told.out) == (0, "counting: the plans do the same\n")
    plain = json.loads(call(capsys, "diff", plan, plan, "--json").out)
    assert plain["equal"] is True
    assert plain["differences"] == []
    assert len(set(plain["plan_hashes"])) == 1


def test_diff_says_in_words_what_differs_and_exits_with_1(plan: str, capsys: Capture) -> None:
    call(capsys, "compile", "counting.py", "--set", "batch=16", "-o", "q.fgplan")
    told = call(capsys, "diff", plan, "q.fgplan")
    assert told.status == 1
    assert "the graph\n  setting batch 16 instead of" in told.out
    plain = call(capsys, "diff", plan, "q.fgplan", "--json")
    assert plain.status == 1
    found = json.loads(plain.out)
    assert found["equal"] is False
    assert {"about", "subject", "said", "before", "after"} == set(found["differences"][0])


def test_diff_of_something_that_is_no_plan_is_the_users_to_mend(plan: str, capsys: Capture) -> None:
    told = call(capsys, "diff", plan, "nowhere.fgplan")
    assert told.status == 2
    assert told.err.startswith("error: nowhere.fgplan: no such file")
