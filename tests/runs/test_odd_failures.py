"""Failures that are nobody's plan: full disks, closed pipes, debuggers, signals, torn files."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.run_lock import RunLock, holder
from flowgraph.runtime.scratch import LOCK, sweep
from flowgraph.runtime.shell import RunAborted
from tests.runs.command import COMMAND, members, start, wait_for
from tests.runs.running import GRAPHS, ROOT, all_end, plan_of, run

LETTERS = str(GRAPHS / "letters.py")
ODD = GRAPHS / "odd.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "cause", "hint"),
    [
        ("keyboard", "KeyboardInterrupt", ""),
        ("cancelled", "CancelledError", ""),
        ("exit", "SystemExit: 3", ""),
        ("breakpoint", "breakpoint() in a worker, which has no terminal", "--reference"),
        ("debugger", "a debugger in a worker reads nothing", "--reference"),
    ],
)
def test_whatever_users_code_raises_is_named_with_stage_sample_and_line(
    what: str, cause: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(RunAborted) as caught:
        run(plan_of(ODD, {"what": what}), tmp_path / "run")
    error = caught.value
    assert (error.stage, error.sample) == ("oddly", 5)
    assert cause in error.what
    assert error.at is not None
    assert error.at.file.endswith("odd.py")
    assert hint in str(error.hint)


@pytest.mark.slow
def test_a_crash_in_c_code_leaves_the_python_line_in_the_log(tmp_path: Path) -> None:
    with pytest.raises(RunAborted, match="SIGSEGV") as caught:
        run(plan_of(ODD, {"what": "crash"}), tmp_path / "run")
    log = (tmp_path / "run" / "logs" / "host-0.log").read_text()
    assert "Fatal Python error: Segmentation fault" in log
    assert re.search(r'odd.py", line \d+ in oddly', log)
    assert "Fatal Python error: Segmentation fault" in caught.value.trace
    assert caught.value.at is not None
    assert caught.value.at.file.endswith("odd.py")


FULL = """
set -e
folder=$1; small=$2; size=$3; shift 3
mount -t tmpfs -o size=$size tmpfs $small
cp -r $folder.made/. $folder/
set +e
timeout 100 "$@" resume $folder
echo "status $?"
cat $folder/outcome.json
mount -o remount,size=64m $small
sed -i 's/"steps": 100000/"steps": 5/' $folder/options.json
timeout 100 "$@" resume $folder --json
"""
"""Goes on with a run whose folder (or one in it) is a small disk; then the disk is made larger."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "size", "every"),
    [
        pytest.param("", "600k", 0, marks=pytest.mark.soak),
        ("checkpoints", "16k", 3),
        pytest.param("logs", "64k", 0, marks=pytest.mark.soak),
    ],
)
def test_a_full_disk_ends_the_run_naming_the_file_and_with_room_it_goes_on(
    part: str, size: str, every: int, tmp_path: Path
) -> None:
    folder, made = tmp_path / "run", tmp_path / "run.made"
    what = "loud" if part == "logs" else "nothing"
    options = RunOptions(run_dir=str(made), steps=100000, checkpoint_every=every, retries=0)
    RunDirectory.create(options, plan_of(ODD, {"what": what})).close()
    (folder / part).mkdir(parents=True)
    inside = ["bash", "-c", FULL, "full", str(folder), str(folder / part), size, *COMMAND]
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount anything")
    done = subprocess.run([*alone, *inside], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "status 1" in done.stdout, done.stderr
    if part == "logs":
        assert "stage 'oddly', sample 5: OSError: [Errno 28] No space left on device" in done.stderr
        assert "odd.py" in done.stderr
    else:
        assert re.search(rf"cannot write \S*{folder / part}\S*", done.stderr), done.stderr
    assert '"state": "failed"' in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["steps"] >= 5


def test_metrics_that_cannot_be_written_are_named_and_what_is_there_stays_whole(
    tmp_path: Path,
) -> None:
    script = (
        "import resource, sys\n"
        "from flowgraph.runtime.failures import CannotWrite\n"
        "from flowgraph.runtime.progress import EvaluationFinished\n"
        "from flowgraph.runtime.run_directory import RunDirectory\n"
        "from pathlib import Path\n"
        "directory = RunDirectory.reopen(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "told = EvaluationFinished(name='held-out', step=0, figures={'exact_match': 0.5})\n"
        "try:\n"
        "    for _ in range(100):\n"
        "        directory.progress(told)\n"
        "except CannotWrite as error:\n"
        "    print(error.file)\n"
    )
    folder = tmp_path / "run"
    RunDirectory.create(RunOptions(run_dir=str(folder)), plan_of(GRAPHS / "letters.py")).close()
    command = [COMMAND[0], "-c", script, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(folder / "metrics.jsonl")
    directory = RunDirectory.reopen(folder)
    assert directory.rewind(None) == 0  # the torn last line is no trouble
    assert (folder / "metrics.jsonl").read_text() == ""
    directory.close()


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    line = " ".join([*COMMAND, "run", LETTERS, "--run-dir", str(folder)])
    shell = ["bash", "-c", f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"run directory: {folder}\n"
    assert "BrokenPipe" not in done.stderr
    assert json.loads((folder / "outcome.json").read_text())["state"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGHUP],
        [signal.SIGINT] * 5,
        pytest.param([signal.SIGINT], marks=pytest.mark.soak),
    ],
    ids=["a closed terminal", "Ctrl-C again and again", "Ctrl-C"],
)
def test_who_asks_it_to_end_ends_all_processes_and_the_folder_says_so(
    numbers: list[int], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    process = start("run", LETTERS, "--set", "steps=100000", "--run-dir", str(folder))
    wait_for(process, "step ")
    running = members(process.pid)
    for number in numbers:
        os.killpg(process.pid, number)
    assert process.wait(timeout=20) == 1
    assert all_end(running, within_s=1.0)
    assert json.loads((folder / "outcome.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
def test_a_resumed_run_that_fails_names_the_log_and_the_command_that_replays_the_sample(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    options = RunOptions(run_dir=str(folder), retries=0)
    RunDirectory.create(options, plan_of(ODD, {"what": "exit"})).close()
    command = [*COMMAND, "resume", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"log: {folder}/logs/host-0.log" in done.stderr
    replay = re.search(r"replay: (.+)", done.stderr)
    assert replay
    assert replay[1] == f"flowgraph run {folder}/plan.fgplan --reference --only 5"
    again = [*COMMAND, *replay[1].split()[1:], "--run-dir", str(tmp_path / "replayed")]
    replayed = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "stage 'oddly', sample 5: SystemExit: 3" in replayed.stderr


def test_a_run_directory_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    options = RunOptions(run_dir=str(tmp_path / "run"))
    directory = RunDirectory.create(options, plan_of(GRAPHS / "letters.py"))
    assert holder(tmp_path / "run" / "run.lock") == os.getpid()
    with pytest.raises(ConfigurationError, match="is in use: its run goes on"):
        RunDirectory.reopen(tmp_path / "run")
    directory.close()
    assert holder(tmp_path / "run" / "run.lock") is None
    RunDirectory.reopen(tmp_path / "run").close()


def test_scratch_folders_of_dead_runs_are_swept_and_those_of_living_ones_are_not(
    tmp_path: Path,
) -> None:
    dead, alive, foreign = (tmp_path / f"flowgraph-{name}" for name in ("dead", "alive", "other"))
    for folder in (dead, alive, foreign):
        folder.mkdir()
        (folder / "orchestrator").touch()
    (dead / LOCK).touch()
    lock = RunLock(alive / LOCK)
    assert lock.take()
    assert sweep(tmp_path) == [dead]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [alive.name, foreign.name]
    lock.release()
    assert sweep(tmp_path) == [alive]
