"""Checkpoints: whole or not there, whoever is killed; never read when a byte of one has changed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.checkpoint import KEPT, check, commit, latest, sweep
from tests.runs.running import ROOT
from tests.runtime.killed_commit import STATE


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save(folder: Path, step: int, content: bytes = b"weights") -> Path:
    """As the modules do it; returns the checkpoint that `commit` will make."""
    checkpoint = folder / f"step-{step:08d}"
    partial = folder / f"{checkpoint.name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    for name in ("lm.safetensors", "lm.optimizer.safetensors", "lm.version"):
        (partial / name).write_bytes(content + b" of " + f"{name} {step}".encode())
    return checkpoint


def made(folder: Path, *steps: int) -> Path:
    for step in steps:
        commit(save(folder, step), f"state {step}".encode())
    return folder


def test_a_checkpoint_holds_all_that_was_saved_with_a_digest_of_each(tmp_path: Path) -> None:
    made(tmp_path, 1)
    checkpoint = latest(tmp_path)
    assert checkpoint == tmp_path / "step-00000001"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert sorted([*manifest, "manifest.json"]) == names(checkpoint)
    assert len(manifest) == 4


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    made(tmp_path, 1, 2, 5, 9)
    assert KEPT == 2
    assert names(tmp_path) == ["step-00000005", "step-00000009"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_commit_killed_at_any_moment_leaves_the_one_before_it_or_the_new_one_whole(
    damaged: bool, tmp_path: Path
) -> None:
    """damaged: the step was saved before, and is saved again since a byte of it has changed."""
    template, into = tmp_path / "template", tmp_path / "into"
    made(template, 1, 2, *([3] if damaged else []))
    if damaged:
        (template / "step-00000003" / "run.msgpack").write_bytes(b"torn")
    save(template, 3, content=b"new")
    command = [sys.executable, "-m", "tests.runtime.killed_commit", str(template), str(into)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    moments = int(done.stdout)
    assert moments > 50
    found = []
    for moment in range(moments + 1):
        folder = into / f"{moment}"
        checkpoint = latest(folder)
        assert checkpoint is not None, moment
        found.append(checkpoint.name)
        before = (checkpoint / "lm.version").read_bytes()
        assert before == (b"new of lm.version 3" if found[-1][-1] == "3" else before)
        go_on(folder, moment)
    assert found[-1] == "step-00000003"
    assert set(found) == {"step-00000002", "step-00000003"}


def go_on(folder: Path, moment: int) -> None:
    """The run that was killed goes on: what it saves is whole, and nothing is left over."""
    sweep(folder)
    assert all(path.suffix != ".partial" for path in folder.iterdir()), moment
    for step in (3, 4):
        commit(save(folder, step, content=b"again"), STATE)
        checkpoint = latest(folder)
        assert checkpoint is not None
        assert checkpoint.name == f"step-{step:08d}", moment
        assert (checkpoint / "lm.version").read_bytes() == f"again of lm.version {step}".encode()
    assert names(folder) == ["step-00000003", "step-00000004"], moment


def test_what_a_killed_commit_left_comes_into_no_other_checkpoint(tmp_path: Path) -> None:
    made(tmp_path, 1)
    checkpoint = save(tmp_path, 2)
    (tmp_path / "step-00000002.partial" / "manifest.json").write_text('{"lm.version": "old"}')
    commit(checkpoint, b"state")
    assert check(checkpoint) is None


def flip(file: Path) -> None:
    """The first byte has another lowest bit."""
    first, *others = file.read_bytes()
    file.write_bytes(bytes([first ^ 1, *others]))


def become_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "delete": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "truncate": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "extend": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "flip": flip,
    "a folder": become_a_folder,
}
FILES = ("lm.safetensors", "lm.optimizer.safetensors", "lm.version", "run.msgpack", "manifest.json")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_of_a_damaged_checkpoint_the_file_is_named_and_the_one_before_it_is_taken(
    file: str, damage: str, tmp_path: Path
) -> None:
    made(tmp_path, 4, 8)
    DAMAGES[damage](tmp_path / "step-00000008" / file)
    told: list[tuple[str, str]] = []
    assert latest(tmp_path, lambda name, what: told.append((name, what))) == (
        tmp_path / "step-00000004"
    )
    ((name, what),) = told
    assert name == "step-00000008"
    assert file in what
    shutil.rmtree(tmp_path / "step-00000004")
    with pytest.raises(ConfigurationError, match=f"damaged: step-00000008: .*{file}"):
        latest(tmp_path)


def test_whichever_bit_of_a_manifest_changes_nothing_is_read_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    made(tmp_path, 4, 8)
    manifest = tmp_path / "step-00000008" / "manifest.json"
    whole = manifest.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(changed)
        assert latest(tmp_path) == tmp_path / "step-00000004", (bit, bytes(changed))
    manifest.write_bytes(whole)
    assert latest(tmp_path) == tmp_path / "step-00000008"


def test_a_manifest_that_names_too_little_vouches_for_nothing(tmp_path: Path) -> None:
    made(tmp_path, 4, 8)
    for text in ("{}", "null", "[]", '"run.msgpack"', '{"lm.version": ""}'):
        (tmp_path / "step-00000008" / "manifest.json").write_text(text)
        assert latest(tmp_path) == tmp_path / "step-00000004", text


def test_a_damaged_future_is_gone_once_the_run_has_saved_again(tmp_path: Path) -> None:
    made(tmp_path, 4, 8)
    (tmp_path / "step-00000008" / "lm.version").unlink()
    commit(save(tmp_path, 6), b"state")
    assert names(tmp_path) == ["step-00000004", "step-00000006"]
