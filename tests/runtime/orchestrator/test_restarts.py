"""What follows a loss: the whole table, and the budget that both kinds of restart share."""

import pytest

from flowgraph.runtime.orchestrator.restarts import TABLE, Loss, Verdict, verdict


@pytest.mark.parametrize(
    ("kind", "loss", "left", "ending", "expected"),
    [
        ("stage", Loss.GONE, 1, False, Verdict.REPLACE),
        ("engine", Loss.GONE, 1, False, Verdict.REPLACE),
        ("gang", Loss.GONE, 1, False, Verdict.ROLL_BACK),
        ("gang", Loss.PEER, 1, False, Verdict.ROLL_BACK),
        ("stage", Loss.GONE, 0, False, Verdict.END),
        ("engine", Loss.GONE, 0, False, Verdict.END),
        ("gang", Loss.GONE, 0, False, Verdict.END),
        ("gang", Loss.PEER, 0, False, Verdict.END),
        ("stage", Loss.GONE, 0, True, Verdict.IGNORE),
        ("engine", Loss.GONE, 3, True, Verdict.IGNORE),
        ("gang", Loss.GONE, 1, True, Verdict.ROLL_BACK),
        ("gang", Loss.GONE, 0, True, Verdict.END),
    ],
)
def test_a_loss_is_answered_by_the_table_and_the_budget(
    kind: str, loss: Loss, left: int, ending: bool, expected: Verdict
) -> None:
    assert verdict(kind, loss, left=left, ending=ending) is expected


@pytest.mark.parametrize("kind", ["stage", "engine", "gang"])
@pytest.mark.parametrize("left", [0, 7])
@pytest.mark.parametrize("ending", [False, True])
def test_what_the_users_code_raised_ends_the_run_whatever_is_left(
    kind: str, left: int, ending: bool
) -> None:
    assert verdict(kind, Loss.RAISED, left=left, ending=ending) is Verdict.END


def test_every_kind_of_worker_has_an_answer_to_being_gone_and_to_raising() -> None:
    for kind in ("stage", "engine", "gang"):
        assert {(kind, Loss.GONE), (kind, Loss.RAISED)} <= TABLE.keys()
