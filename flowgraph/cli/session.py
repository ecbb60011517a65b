"""What one call of the command line knows from its first line on."""

import os
import time
from typing import Any

import click


class Session:
    """verbose: errors are told with a traceback."""

    def __init__(self) -> None:
        self.verbose = False


def _be_verbose(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and isinstance(ctx.obj, Session):
        ctx.obj.verbose = True


def verbose_option(command: Any) -> Any:
    """`-v`, which every command and the group take."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_be_verbose,
        help="Show tracebacks of errors.",
    )(command)


_IMPORTED = time.monotonic()
_START_FIELD = 19
"""Index of `starttime` among the fields of /proc/PID/stat that follow the command's name."""


def wall_seconds() -> float:
    """Seconds since this process began, as the kernel counts them.

    Where /proc cannot say it, since this module was imported (some 0.1 s later).
    """
    try:
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return time.monotonic() - _IMPORTED
    began = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
