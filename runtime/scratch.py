"""The private folder of a run for sockets, keys and rendezvous files: gone with the run.

A run that was killed cannot remove its own; the next one of the same user does. Whether a folder's
run lives is known by its lock, which the kernel frees at any death.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowgraph.runtime.run_lock import RunLock, holder

PREFIX = "flowgraph-"
LOCK = "scratch.lock"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder of mode 0700, removed at the end. Folders of dead runs are removed first."""
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        lock = RunLock(Path(folder) / LOCK)
        if not lock.take():
            raise AssertionError("a folder that was just made is another's")
        try:
            yield folder
        finally:
            lock.release()


def sweep(folder: Path) -> list[Path]:
    """Remove this user's scratch folders whose run is dead; what was removed.

    A folder without a lock is not ours, or not yet: it is left alone.
    """
    removed = []
    for found in folder.glob(f"{PREFIX}*"):
        try:
            info = found.lstat()
            dead = (found / LOCK).is_file() and holder(found / LOCK) is None
        except OSError:
            continue  # another run sweeps too, or it is not ours to look into
        if dead and found.is_dir() and not found.is_symlink() and info.st_uid == os.getuid():
            shutil.rmtree(found, ignore_errors=True)
            removed.append(found)
    return removed
