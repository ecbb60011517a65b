"""What starts workers outlives an attempt at a run (see `test_killed_inside`), or is replaced."""

import os
import signal
from pathlib import Path

import pytest

from flowgraph.runtime.launch import local
from flowgraph.runtime.launch.local import LocalLauncher


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_between_attempts_a_process_that_is_gone_or_hangs_is_replaced(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_AFTER_S", 0.2)
    with LocalLauncher() as launcher:
        pid = launcher.zygote_pid
        os.kill(pid, number)
        launcher.clear()
        assert launcher.zygote_pid != pid
        assert not Path(f"/proc/{pid}").exists()
        assert launcher.poll() == []
