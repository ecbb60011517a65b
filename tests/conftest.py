"""Options and fixtures of all tests: golden files are compared, or rewritten when asked."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")

SEPARATOR = "\n-----\n"

Golden = Callable[[Path, str], None]


LONGEST = ("tests/runs/test_learning.py", "tests/runs/", "tests/cli/", "tests/cases/")
"""Files of real processes come first, so that no core is left with a long one at the end."""


def pytest_configure() -> None:
    """Signals must reach what tests start, also where they run in the background or by `nohup`."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order of files; that of the tests in a file stays."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(test: str) -> int:
    return next((i for i, start in enumerate(LONGEST) if test.startswith(start)), len(LONGEST))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected part of golden files with what came out",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(file, output)`: the file's part after the line `-----` is the output.

    With `--update-golden` the file is rewritten instead.
    """
    update = bool(request.config.getoption("--update-golden"))

    def check(file: Path, output: str) -> None:
        given, _, expected = file.read_text().partition(SEPARATOR)
        if update:
            file.write_text(f"{given.rstrip()}{SEPARATOR}{output.rstrip()}\n")
        else:
            assert output.rstrip() == expected.rstrip(), f"{file}: pytest --update-golden"

    return check
