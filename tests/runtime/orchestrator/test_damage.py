"""A file of the newest checkpoint is damaged: the run goes on from the one before, to its bits."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.runtime.orchestrator.live import LiveRun
from tests.runtime.orchestrator.losses import (
    RUNS,
    STEPS,
    TOLD,
    exact_torch,
    plan_named,
    uninterrupted,
)

NEWEST = f"checkpoints/step-{STEPS:08d}"


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    """One bit in the middle is another."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(content)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of the uninterrupted runs."""
    made = {name: tmp_path_factory.mktemp(name) for name in RUNS}
    with exact_torch():
        for name, folder in made.items():
            LiveRun(plan_named(name), folder, STEPS).run()
    return made


def module_files(name: str) -> list[str]:
    modules = [module.name for module in plan_named(name).graph.modules]
    endings = ("safetensors", "optimizer.safetensors", "version")
    return [f"{module}.{ending}" for module, ending in product(modules, endings)]


CASES = [
    (name, file, damage)
    for name in RUNS
    for file in (*module_files(name), "run.msgpack", "manifest.json")
    for damage in (truncate, flip, Path.unlink)
]
SAMPLED = CASES[4::13]


def marked(case: tuple[str, str, Callable[[Path], object]]) -> object:
    name, file, damage = case
    marks = () if case in SAMPLED else (pytest.mark.soak,)
    return pytest.param(*case, marks=marks, id=f"{name}-{file}-{damage.__name__}")


@pytest.mark.parametrize(("name", "file", "damage"), [marked(case) for case in CASES])
def test_a_run_goes_on_from_before_a_damaged_checkpoint_and_ends_with_the_same_bits(
    name: str,
    file: str,
    damage: Callable[[Path], object],
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folders[name], folder)
    damage(folder / NEWEST / file)
    with exact_torch():
        live = LiveRun(plan_named(name), folder, STEPS)
        result = live.run()
    whole, events = uninterrupted(name)
    assert 10 < live.events < events, "it began anew, or had nothing to do"
    for what in TOLD:
        assert getattr(result, what) == getattr(whole, what), what
