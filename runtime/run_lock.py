"""Who has a run directory: at most one process, known to the kernel, which frees it at any death.

An open-file-description lock (fcntl(2), Linux) on `run.lock`: unlike flock it works over NFS, and
whether it is held can be asked without taking it.
"""

import fcntl
import os
import struct
from pathlib import Path

_FLOCK = "hhqqi4x"
"""struct flock on 64-bit Linux: type, whence, start, length, pid."""


class RunLock:
    """Held from `take` until `release`, or until this process dies."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fd = -1

    def take(self) -> bool:
        """False when another has it."""
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError):
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder(file: Path) -> int | None:
    """The process that has the lock, 0 when it did not say; None when nobody has it."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        told = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
        if struct.unpack(_FLOCK, told)[0] == fcntl.F_UNLCK:
            return None
        written = os.pread(fd, 32, 0).strip()
    finally:
        os.close(fd)
    return int(written) if written.isdigit() else 0


def _flock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
