"""Who is killed inside an update, a save, or a commit, and not between two messages."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flowgraph.ir.binary import encode
from flowgraph.ir.plan import Plan
from flowgraph.runtime.progress import Progress, Restarted, RunResult, WorkerStarted
from tests.cases.processes import TOLD, ended_at
from tests.runs.command import COMMAND, flowgraph, steps_of
from tests.runs.graphs.dying import SAVING, UPDATING, VARIABLE
from tests.runs.running import GRAPHS, ROOT, plan_of, run

pytestmark = pytest.mark.slow

STEPS = 10
OTHERS = ("before-applying", "after-applying", "before-saving", "between-files")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(GRAPHS / "dying.py", {"steps": str(STEPS)}, {"lm.ranks": 2})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the uninterrupted run is."""
    return tmp_path_factory.mktemp("whole") / "run"


@pytest.fixture(scope="module")
def whole(plan: Plan, finished: Path) -> RunResult:
    return run(plan, finished, exact=True, checkpoint_every=1)


class Watching:
    """When a run goes back to its last checkpoint nobody of before is left, but who forks them."""

    def __init__(self) -> None:
        self.roll_backs = 0
        self.parents: set[str] = set()
        self._pids: list[int] = []

    def __call__(self, progress: Progress) -> None:
        match progress:
            case WorkerStarted():
                self._pids.append(progress.pid)
                stat = Path(f"/proc/{progress.pid}/stat").read_text()
                self.parents.add(stat.rpartition(")")[2].split()[1])
            case Restarted():
                self.roll_backs += 1
                assert not any(Path(f"/proc/{pid}").exists() for pid in self._pids)


def doom(folder: Path, whose: str, *places: str) -> str:
    """What the environment says; the first rank to be killed waits until another has applied."""
    folder.mkdir()
    os.mkfifo(folder / "other-applied")
    return f"{folder}:{whose}:{','.join(places)}"


@pytest.mark.parametrize(
    "places",
    [
        ("before-applying", "amid-a-file", "before-renaming"),
        pytest.param((*UPDATING, *SAVING), marks=pytest.mark.soak),
    ],
)
def test_ranks_killed_inside_updates_and_saves_leave_no_trace_in_the_result(
    places: tuple[str, ...],
    plan: Plan,
    whole: RunResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where one rank dies before it has applied an update, the other has."""
    monkeypatch.setenv(VARIABLE, doom(tmp_path / "doom", "rank", *places))
    folder, watch = tmp_path / "run", Watching()
    result = run(plan, folder, exact=True, checkpoint_every=1, restarts=len(places), observe=watch)
    assert len(watch.parents) == 1
    assert 2 <= watch.roll_backs <= len(places), "two may die at once"
    assert sorted(os.listdir(tmp_path / "doom")) == sorted(places), "not all were reached"
    for name in TOLD:
        assert getattr(result, name) == getattr(whole, name), name
    assert steps_of(folder) == list(range(STEPS))
    assert not list((folder / "checkpoints").glob("*.partial"))


@pytest.mark.parametrize(
    ("operation", "places"),
    [
        (20, ("before-renaming",)),
        *(
            pytest.param(number, () if number else OTHERS, marks=pytest.mark.soak)
            for number in range(30)
        ),
    ],
)
def test_an_orchestrator_killed_inside_a_commit_an_update_or_a_save_resumes_to_the_same_bits(
    operation: int,
    places: tuple[str, ...],
    plan: Plan,
    whole: RunResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First inside its second commit; then, resumed, while a rank is at each of the places."""
    folder, file = tmp_path / "run", tmp_path / "dying.fgplan"
    file.write_bytes(encode(plan))
    options = ["--exact", "--checkpoint-every=1", f"--run-dir={folder}"]
    moment = f"commit:2:{operation}"
    assert ended_at(moment, "run", str(file), *options) == -signal.SIGKILL
    monkeypatch.setenv(VARIABLE, doom(tmp_path / "doom", "orchestrator", *places))
    while not set(places) <= set(os.listdir(tmp_path / "doom")):  # two ranks may be at two places
        command = [*COMMAND, "resume", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    resumed = flowgraph("resume", str(folder))
    for name in TOLD:
        assert resumed[name] == getattr(whole, name), name
    assert steps_of(folder) == list(range(STEPS))


def damaged(file: Path) -> None:
    """One bit of the file is another."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def test_of_a_damaged_checkpoint_nothing_is_read_and_the_user_is_told(
    whole: RunResult, finished: Path, tmp_path: Path
) -> None:
    """In a run that was killed before it could say that it was at its end."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "outcome.json").unlink()
    one, other = sorted((folder / "checkpoints").glob("step-*[0-9]"))
    damaged(other / "lm.safetensors")
    damaged(one / "run.msgpack")
    resume = [*COMMAND, "resume", str(folder)]
    done = subprocess.run(resume, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{other.name}: lm.safetensors was changed" in done.stderr
    assert f"{one.name}: run.msgpack was changed" in done.stderr
    damaged(one / "run.msgpack")  # the same bit again: as it was
    done = subprocess.run([*resume, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    told = f"checkpoint {other.name} is damaged (lm.safetensors was changed): going on from"
    assert told in done.stderr
    resumed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for name in TOLD:
        assert resumed[name] == getattr(whole, name), name
    assert steps_of(folder) == list(range(STEPS))
