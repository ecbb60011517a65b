"""Each check: what was looked at, whether it will do, and what to do where it will not."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version

from flowgraph.cli.local_machine import accelerators, usable_cores, usable_memory

LIMIT_S = 120.0
"""Seconds a probe may take: a first import of torch from a cold disk takes half a minute."""

OLDEST = (3, 11)
DISTRIBUTION = "flowgraph-train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """name: what was looked at. text: what was found. cure: what to do when not `ok`."""

    name: str
    ok: bool
    text: str
    cure: str = ""


def check_python() -> Finding:
    return Finding(
        name="python",
        ok=sys.version_info[:2] >= OLDEST,
        text=f"{platform.python_version()} at {sys.executable}",
        cure=f"install Python {OLDEST[0]}.{OLDEST[1]} or newer",
    )


def check_machine() -> Finding:
    memory = usable_memory() / 2**30
    return Finding(
        name="machine",
        ok=sys.platform == "linux",
        text=f"{platform.system()} {platform.release()}, {usable_cores()} cores, {memory:.1f} GiB",
        cure="runs need Linux: memfd, /proc, and signals of a parent's death",
    )


def check_accelerators() -> Finding:
    found = ", ".join(f"{a.name} ({a.memory_bytes / 2**30:.0f} GiB)" for a in accelerators())
    return Finding(
        name="accelerators", ok=True, text=f"{found or 'none'}; workers compute on CPU cores"
    )


def check_packages() -> Finding:
    """What the distribution requires is installed; versions are the installer's to check."""
    names = [line for line in requires(DISTRIBUTION) or () if "extra ==" not in line]
    missing = [name for name in map(_bare, names) if not _installed(name)]
    return Finding(
        name="packages",
        ok=not missing,
        text=f"missing: {', '.join(missing)}" if missing else f"{len(names)} are there",
        cure=f"pip install {' '.join(missing)}",
    )


def _bare(requirement: str) -> str:
    """`triton>=3.7; sys_platform == ...` → `triton`."""
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end]


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def check_compiler() -> Finding:
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")
    return Finding(
        name="compiler",
        ok=bool(found),
        text=found or "no C compiler found",
        cure="apt install gcc: Triton builds its launchers with it",
    )


def check_probe(name: str, *probe: str, cure: str) -> Finding:
    """A probe in a process of its own: the last line that it said."""
    command = [sys.executable, "-m", "flowgraph.cli.doctor.probes", *probe]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return Finding(name=name, ok=False, text=f"no answer within {LIMIT_S:.0f} s", cure=cure)
    good = done.returncode == 0
    said = (done.stdout if good else done.stderr).strip().splitlines()
    text = said[-1] if said else f"ended with status {done.returncode}"
    return Finding(name=name, ok=good, text=text, cure=cure)


def _reinstall(package: str) -> str:
    return f"pip install --force-reinstall {package}, at its version in constraints/cpu.txt"


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_machine,
    check_accelerators,
    check_packages,
    partial(check_probe, "torch", "torch", cure="make setup, or pip install torch"),
    partial(check_probe, "triton", "triton", cure=_reinstall("triton")),
    partial(check_probe, "zmq", "zmq", cure=_reinstall("pyzmq")),
    partial(check_probe, "HiGHS", "solver", "HiGHS", cure=_reinstall("highspy")),
    partial(check_probe, "CBC", "solver", "PULP_CBC_CMD", cure=_reinstall("pulp")),
    partial(
        check_probe,
        "shared memory",
        "shared_memory",
        cure="a kernel with memfd_create, a readable /proc, and memory to spare",
    ),
    partial(check_probe, "workers", "workers", cure="mend what is named here: workers import it"),
    partial(check_probe, "gloo", "gloo", cure="bring the loopback interface up: ip link set lo up"),
    check_compiler,
)
"""Cheap ones first; each of the others starts a process."""
