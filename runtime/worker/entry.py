"""A worker process from its first line to its last: what every kind has in common."""

import faulthandler
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import torch

from flowgraph.ir.binary import decode
from flowgraph.ir.errors import FlowgraphError
from flowgraph.runtime.failures import OwnerGone, StageFailed
from flowgraph.runtime.heartbeat import start_beating
from flowgraph.runtime.messages import Failed
from flowgraph.runtime.stages.faults import refuse_breakpoints
from flowgraph.runtime.trainer.collective import CollectiveFailed
from flowgraph.runtime.transport.failures import BlockUnreachable
from flowgraph.runtime.worker.engine import run_engine
from flowgraph.runtime.worker.gang import run_gang
from flowgraph.runtime.worker.link import Link
from flowgraph.runtime.worker.spec import ORPHANED, UNREACHABLE, WorkerSpec
from flowgraph.runtime.worker.stage import run_stage

KINDS = {"stage": run_stage, "engine": run_engine, "gang": run_gang}


def prepare_torch(exact: bool) -> None:
    """One thread a worker: that is what makes results equal wherever work runs.

    exact: only deterministic operations, and an error for others.
    """
    torch.set_num_threads(1)
    if exact:
        torch.set_deterministic_debug_mode("error")


def main(spec: WorkerSpec) -> int:
    """Run the worker; its exit status. Ctrl-C is the orchestrator's to handle, not ours."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    redirect(spec.log)
    refuse_breakpoints()
    faulthandler.enable()  # a crash in C code leaves the Python line in the log
    start_beating(spec.name, spec.endpoint, spec.keys, spec.beat_s)
    link = Link(spec.name, spec.endpoint, spec.keys, spec.incarnation)
    try:
        prepare_torch(spec.exact)
        plan = decode(Path(spec.plan).read_bytes())
        kind = plan.group(spec.group).kind
        KINDS[kind](spec, plan, link, os.getpid())
    except BlockUnreachable:  # nobody's code is at fault: a lost worker, not a failed one
        traceback.print_exc()
        return UNREACHABLE
    except OwnerGone:  # the lost one's own end is told beside this
        traceback.print_exc()
        return ORPHANED
    except BaseException as error:
        link.send(failure(spec, error))
        with suppress(OSError):  # the log's disk may be what is full
            traceback.print_exc()
        return 1
    finally:
        link.close()
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


def failure(spec: WorkerSpec, error: BaseException) -> Failed:
    """The error as a message; a `StageFailed` knows its stage and sample."""
    stage, sample, cause, trace, at = spec.group, None, _one_line(error), "", ""
    training = False
    if isinstance(error, StageFailed):
        stage, sample, cause, trace = error.stage, error.sample, error.cause, error.trace
        training = not error.evaluating
    hint = ""
    if isinstance(error, FlowgraphError):
        at = "" if error.at is None else str(error.at)
        hint = error.hint or ""
    return Failed(
        worker=spec.name,
        lost_peer=isinstance(error, CollectiveFailed),
        training=training,
        hint=hint,
        stage=stage,
        sample=sample,
        cause=cause,
        traceback=trace or "".join(traceback.format_exception(error)),
        at=at,
    )


def _one_line(error: BaseException) -> str:
    if isinstance(error, FlowgraphError):
        return error.what  # place and hint go their own ways
    text = str(error).strip().replace("\n", " ")
    return f"{type(error).__name__}: {text}"


def redirect(log: str) -> None:
    """Standard output and error, also of C code, go to the worker's log."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
