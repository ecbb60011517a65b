"""How an error is told: what, where, what to do, in a few lines on standard error."""

import traceback

import click

from flowgraph.ir.errors import FlowgraphError, InternalError

FAILED = 1


def tell(error: Exception, *, verbose: bool) -> int:
    """Print the error, with its notes below it and a traceback if `verbose`; the exit status."""
    if verbose:
        click.echo(_trace(error).rstrip() + "\n", err=True)
    lines, status = _lines(error)
    head = click.style("error:", fg="red", bold=True)
    click.echo(f"{head} " + "\n  ".join([*lines, *getattr(error, "__notes__", ())]), err=True)
    return status


def _trace(error: Exception) -> str:
    """The user's own frames in a worker, where the error brought them; else this process's."""
    brought: str = getattr(error, "trace", "")
    return brought or "".join(traceback.format_exception(error))


def _lines(error: Exception) -> tuple[list[str], int]:
    bug = "this is a bug in flowgraph: please report it, with what -v shows"
    if isinstance(error, InternalError):
        return [str(error), bug], error.exit_code
    if isinstance(error, FlowgraphError):
        return [str(error)], error.exit_code
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):  # the machine's fault: a full disk, a folder that went away
        return [what], FAILED
    return [what, bug], InternalError.exit_code
