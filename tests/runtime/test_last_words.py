"""What a process wrote down while it crashed, and whose line it was."""

import faulthandler
from pathlib import Path

import numpy
import pytest

from flowgraph.runtime import last_words
from flowgraph.runtime.last_words import LastWords
from flowgraph.runtime.launch.endings import death_of, sentence
from flowgraph.runtime.orchestrator.events import Death
from flowgraph.runtime.worker.spec import ORPHANED, UNREACHABLE

USERS = str(Path(__file__).resolve())


def crash(*frames: tuple[str, int], extra: str = "") -> str:
    lines = "".join(f'  File "{file}", line {line} in f\n' for file, line in frames)
    others = 'Thread 0x01 (most recent call first):\n  File "/other.py", line 1 in g\n\n'
    return (
        f"Fatal Python error: Segmentation fault\n\n{others}"
        f"Current thread 0x02 (most recent call first):\n{lines}{extra}"
        "\nExtension modules: numpy.core (total: 1)\n"
    )


def test_the_traceback_of_a_crash_is_found_with_the_users_innermost_line(tmp_path: Path) -> None:
    log = tmp_path / "host-0.log"
    words = LastWords({"host-0": str(log)})
    library, ours = str(Path(numpy.__file__)), str(Path(last_words.__file__))
    log.write_text("some print\n" + crash((library, 5), (USERS, 11), (ours, 3)))
    trace, at = words.of("host-0")
    assert trace.startswith("Fatal Python error: Segmentation fault")
    assert "Extension modules" not in trace
    assert at.endswith("test_last_words.py:11")


def test_a_crash_of_an_earlier_process_is_not_told_again(tmp_path: Path) -> None:
    log = tmp_path / "host-0.log"
    log.write_text(crash((USERS, 11)))
    words = LastWords({"host-0": str(log)})
    assert words.of("host-0") == ("", "")
    with log.open("a") as more:
        more.write(crash((USERS, 12)))
    assert words.of("host-0")[1].endswith(":12")
    with log.open("a") as more:
        more.write("the next process was killed from outside\n")
    assert words.of("host-0") == ("", "")


def test_a_process_without_a_log_has_no_last_words(tmp_path: Path) -> None:
    assert LastWords({"host-0": str(tmp_path / "none")}).of("host-0") == ("", "")


def test_of_a_very_long_log_the_end_is_looked_at(tmp_path: Path) -> None:
    log = tmp_path / "host-0.log"
    words = LastWords({"host-0": str(log)})
    log.write_text("x" * (2 * last_words.MOST_BYTES) + "\n" + crash((USERS, 11)))
    assert words.of("host-0")[1].endswith(":11")


def test_what_faulthandler_writes_is_what_is_looked_for(tmp_path: Path) -> None:
    """Frames have the form that we read, whatever the version of Python."""
    log = tmp_path / "host-0.log"
    words = LastWords({"host-0": str(log)})
    with log.open("w") as file:
        file.write("Fatal Python error: Aborted\n\n")
        file.flush()
        faulthandler.dump_traceback(file)
    assert "test_last_words.py" in words.of("host-0")[1]


@pytest.mark.parametrize(
    ("code", "death", "words"),
    [
        (-11, Death.CRASHED, "was killed by signal 11 (SIGSEGV)"),
        (-6, Death.CRASHED, "was killed by signal 6 (SIGABRT)"),
        (7, Death.CRASHED, "exited with status 7"),
        (0, Death.CRASHED, "exited with status 0"),
        (-9, Death.KILLED, "was killed by signal 9 (SIGKILL)"),
        (-15, Death.KILLED, "was killed by signal 15 (SIGTERM)"),
        (-40, Death.KILLED, "was killed by signal 40 (SIGRTMIN+6)"),
        (UNREACHABLE, Death.ORPHANED, "could not read a block of another node (exit status 75)"),
        (ORPHANED, Death.ORPHANED, "ended, since a process is gone whose records it was to read"),
    ],
)
def test_an_exit_status_says_whose_doing_it_was(code: int, death: Death, words: str) -> None:
    assert death_of(code) is death
    assert sentence(code) == words
