"""Two small runs of real models, and a worker of them lost at any of their events."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from flowgraph.ir.plan import Plan
from flowgraph.runtime.progress import RunResult
from tests.runs.running import GRAPHS, ROOT, plan_of
from tests.runtime.orchestrator.live import EVERYBODY, LiveRun, Loss

STEPS = 2
RUNS = ("agents", "digits")
TOLD = ("weights_digest", "initial_digest", "samples", "updates", "metrics", "evaluations", "steps")


@contextmanager
def exact_torch() -> Iterator[None]:
    """What a worker of an exact run sets in its process, put back afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


@cache
def plan_named(name: str) -> Plan:
    """agents: two that play together and both learn. digits: an encoder and a decoder."""
    if name == "agents":
        settings = {"game": "together", "steps": str(STEPS)}
        return plan_of(GRAPHS / "games.py", settings)
    return plan_of(ROOT / "examples" / "vlm_digits.py", {"batch": "8", "eval_samples": "4"})


def workers(name: str) -> list[str]:
    return [f"{g.name}-{i}" for g in plan_named(name).groups for i in range(g.replicas)]


def victims(name: str) -> list[str]:
    """Who can be lost: each worker, and the orchestrator with all of them."""
    return [*workers(name), EVERYBODY]


def run_with(name: str, *losses: Loss, seed: int = 0) -> tuple[RunResult, LiveRun]:
    with tempfile.TemporaryDirectory(prefix="fg-") as folder, exact_torch():
        live = LiveRun(plan_named(name), Path(folder), STEPS, losses=losses, seed=seed)
        return live.run(), live


@cache
def uninterrupted(name: str) -> tuple[RunResult, int]:
    """The run that nobody is lost in, and its number of events."""
    result, live = run_with(name)
    return result, live.events


def check(name: str, *losses: Loss, seed: int) -> LiveRun:
    """Raises AssertionError where the run with these losses comes to something else."""
    whole, _ = uninterrupted(name)
    result, live = run_with(name, *losses, seed=seed)
    for what in TOLD:
        got, expected = getattr(result, what), getattr(whole, what)
        assert got == expected, f"{what} of '{name}' with {losses}, seed {seed}: {got}"
    return live
