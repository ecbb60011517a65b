"""Work that raised is tried again a stated number of times, and its last error is the one told."""

import asyncio

import pytest

from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.stages import retries
from flowgraph.runtime.stages.retries import tried


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.0)


class Flaky:
    """Fails so many times."""

    def __init__(self, failures: int) -> None:
        self.left, self.calls = failures, 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise StageFailed("reward", 3, f"attempt {self.calls}")
        return "done"


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_it_succeeds_when_failures_are_no_more_than_retries(
    failures: int, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Flaky(failures)
    assert asyncio.run(tried(work, 2)) == "done"
    assert work.calls == failures + 1
    told = capsys.readouterr().err
    assert told.count("failures.StageFailed: ") == failures
    assert told.count(" of 2 in 0 s\n") == failures


def test_the_last_of_too_many_failures_is_raised() -> None:
    work = Flaky(5)
    with pytest.raises(StageFailed, match="attempt 3"):
        asyncio.run(tried(work, 2))
    assert work.calls == 3


def test_what_is_not_the_users_fault_is_not_tried_again() -> None:
    async def ours() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        asyncio.run(tried(ours, 5))
