"""Checkpoints on disk: whole or not there, and verified before anything is read from one.

`checkpoints/step-<steps>/`: the modules' files, `run.msgpack` (the orchestrator), and
`manifest.json` with an xxh3-128 digest of each. A checkpoint is written under another name,
`step-<steps>.partial`, and renamed when complete: whoever is killed meanwhile, and wherever, what
`latest` finds is the one before it or the new one, whole. What is left of one that was broken off
is removed when the run goes on (`sweep`), and no file of it comes into another.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import xxhash

from flowgraph.ir.errors import ConfigurationError

KEPT = 2
"""The newest may be damaged with the disk; the one before it is the answer to that."""

STATE = "run.msgpack"
MANIFEST = "manifest.json"
PARTIAL = ".partial"

READ_BYTES = 1 << 22
"""At once, of a file that may be larger than memory."""


def commit(folder: Path, data: bytes) -> None:
    """Make `<folder>.partial`, where all modules have saved, the checkpoint `folder`.

    Later ones are of a future that was given up, since they were found damaged: they go too.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    (partial / STATE).write_bytes(data)
    files = [file for file in sorted(partial.iterdir()) if file.name != MANIFEST]
    manifest = {file.name: _digest(file) for file in files}
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for written in (*files, partial / MANIFEST, partial):
        _sync(written)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    _sync(folder.parent)
    present = complete(folder.parent)
    place = present.index(folder)
    for other in (*present[: max(0, place + 1 - KEPT)], *present[place + 1 :]):
        shutil.rmtree(other)


def sweep(folder: Path) -> None:
    """Remove what was not finished, of an attempt that is over."""
    for partial in folder.glob(f"step-*{PARTIAL}"):
        shutil.rmtree(partial)


def complete(folder: Path) -> list[Path]:
    """Checkpoints in the folder, oldest first; partial ones are none."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.glob("step-*") if p.suffix != PARTIAL)


def _silent(_checkpoint: str, _problem: str) -> None:
    return None


def latest(folder: Path, tell: Callable[[str, str], None] = _silent) -> Path | None:
    """The newest checkpoint whose files are what was written, or None when there is none.

    tell: hears of a newer one that is damaged, and how. Raises ConfigurationError when there are
    some and all are damaged.
    """
    found = complete(folder)
    damaged: list[tuple[str, str]] = []
    for checkpoint in reversed(found):
        problem = check(checkpoint)
        if problem is None:
            for name, what in damaged:
                tell(name, what)
            return checkpoint
        damaged.append((checkpoint.name, problem))
    if damaged:
        told = "; ".join(f"{name}: {what}" for name, what in damaged)
        raise ConfigurationError(
            f"every checkpoint is damaged: {told}",
            hint=f"put a copy of one back into {folder}, or run again with another --run-dir",
        )
    return None


def check(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        return f"{MANIFEST} cannot be read ({error})"
    if not isinstance(manifest, dict) or STATE not in manifest:
        return f"{MANIFEST} was changed"
    for name, digest in manifest.items():
        try:
            if _digest(checkpoint / name) != digest:
                return f"{name} was changed"
        except FileNotFoundError:
            return f"{name} is missing"
        except (OSError, ValueError) as error:  # ValueError: of a name that no file can have
            return f"{name} cannot be read ({error})"
    return None


def _digest(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb") as opened:
        while data := opened.read(READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """On the disk, not only in the kernel's memory; of a folder: the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
