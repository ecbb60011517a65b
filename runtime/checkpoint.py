"""Checkpoints on disk: whole or not there, and verified before anything is read from one.

`checkpoints/step-<steps>/`: the modules' files, `run.msgpack` (the orchestrator), and
`manifest.json` with an xxh3-128 digest of each. A checkpoint is written under another name and
renamed when complete.
"""

import json
import os
import shutil
from pathlib import Path

import xxhash

from flowgraph.ir.errors import ConfigurationError

KEPT = 2
"""The newest may be damaged with the disk; the one before it is the answer to that."""


def commit(folder: Path, data: bytes) -> None:
    """Make `<folder>.partial`, where all modules have saved, the checkpoint `folder`."""
    partial = folder.with_name(folder.name + ".partial")
    (partial / "run.msgpack").write_bytes(data)
    manifest = {file.name: _digest(file) for file in sorted(partial.iterdir())}
    (partial / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for file in partial.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    for old in complete(folder.parent)[:-KEPT]:
        shutil.rmtree(old)


def complete(folder: Path) -> list[Path]:
    """Checkpoints in the folder, oldest first; partial ones are none."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.glob("step-*") if p.suffix != ".partial")


def latest(folder: Path) -> Path | None:
    """The newest checkpoint whose files are what was written, or None when there is none.

    Raises ConfigurationError when there are some and all are damaged.
    """
    found = complete(folder)
    damaged: list[str] = []
    for checkpoint in reversed(found):
        problem = check(checkpoint)
        if problem is None:
            return checkpoint
        damaged.append(f"{checkpoint.name}: {problem}")
    if damaged:
        raise ConfigurationError(f"every checkpoint is damaged: {'; '.join(damaged)}")
    return None


def check(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest: dict[str, str] = json.loads((checkpoint / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return f"manifest.json cannot be read ({error})"
    for name, digest in manifest.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if _digest(file) != digest:
            return f"{name} was changed"
    return None


def _digest(file: Path) -> str:
    return xxhash.xxh3_128_hexdigest(file.read_bytes())
