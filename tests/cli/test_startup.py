"""What the command line imports, and how much of a second it takes to say what it can do."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import COUNTING

HEAVY = ("torch", "triton", "zmq", "pulp", "networkx", "transformers")

LISTS_MODULES = """
import json, sys
from flowgraph.cli.main import main
status = main(sys.argv[1:])
print(json.dumps({"status": status, "modules": sorted(sys.modules)}))
"""


def imported(*arguments: str, cwd: Path) -> set[str]:
    """Modules that one command leaves imported in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", LISTS_MODULES, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == 0, done.stderr
    return set(found["modules"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("run", "--help"),
        ("compile", str(COUNTING), "-o", "plan.fgplan"),
        ("inspect", "plan.fgplan"),
        ("inspect", "plan.fgplan", "--ir", "plan", "--json"),
    ],
    ids=["help", "run help", "compile", "inspect", "inspect the plan's data"],
)
def test_these_commands_import_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    if arguments[0] == "inspect":
        imported("compile", str(COUNTING), "-o", "plan.fgplan", cwd=tmp_path)
    assert imported(*arguments, cwd=tmp_path).isdisjoint(HEAVY)


def test_help_imports_neither_numpy_nor_rich_nor_yaml(tmp_path: Path) -> None:
    assert imported("--help", cwd=tmp_path).isdisjoint({"numpy", "rich", "yaml", "cattrs"})


def test_help_takes_under_three_tenths_of_a_second_of_a_core() -> None:
    """Processor time, not wall time: a loaded machine must not fail it. Best of three."""

    def seconds() -> float:
        def used() -> float:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        before = used()
        command = [sys.executable, "-m", "flowgraph.cli.main", "--help"]
        subprocess.run(command, capture_output=True, check=True)
        return used() - before

    assert min(seconds() for _ in range(3)) < 0.3


def test_the_module_is_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flowgraph.cli.main", "run", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: nowhere.py: no such file\n"
