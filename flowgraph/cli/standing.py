"""Where a run stands, as `flowgraph status` tells it: read from its directory, said in lines."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowgraph.ir.errors import ConfigurationError
from flowgraph.report.headline import budgets, duration

QUIET_S = 1.0
"""Shorter waits are how a run breathes, and are not worth a duration."""


def read_standing(folder: Path) -> dict[str, Any]:
    """The object of `status --json`.

    state: `running`; `dead` of a run that was killed before it could say so; or `finished`,
    `failed`, `interrupted`. pid: of who runs it, or null. told: when what follows was written.
    checkpoint: steps in the newest one. resume: the command that goes on, or null.
    Raises ConfigurationError for a folder that is no run directory.
    """
    from flowgraph.runtime.journal_reader import read_status, read_story
    from flowgraph.runtime.run_directory import LOCK
    from flowgraph.runtime.run_lock import holder

    story, found = read_story(folder), read_status(folder)
    outcome = _outcome(folder)
    pid = holder(folder / LOCK)
    state = str(outcome.get("state", "running"))
    if pid is None and state == "running":
        state = "dead"
    elif pid is not None:
        state = "running"
    ended = state in ("dead", "failed", "interrupted")
    told, data = found or (None, {})
    return {
        "run_dir": str(folder.absolute()),
        "state": state,
        "pid": pid,
        "error": str(outcome.get("error", "")) if state == "failed" else "",
        "told": told,
        "attempts": len(story.attempts),
        "restarts": len(story.restarts),
        "quarantined": [one.sample for one in story.quarantined],
        "checkpoint": max(story.checkpoints, default=0),
        "resume": f"flowgraph resume {shlex.quote(str(folder))}" if ended else None,
        **data,
    }


def told(standing: Mapping[str, Any], now: float) -> str:
    """The standing in lines. now: seconds since 1970."""
    lines = [_head(standing, now)]
    if standing["error"]:
        lines += [f"  {line}" for line in standing["error"].splitlines()]
    if standing["quarantined"]:
        samples = ", ".join(map(str, standing["quarantined"]))
        lines.append(f"put aside: samples {samples}")
    at = now if standing["state"] == "running" else standing["told"] or now
    if standing["state"] in ("running", "dead"):
        workers = standing.get("workers", ())
        width = max((len(worker["name"]) for worker in workers), default=0)
        lines += [f"  {worker['name']:<{width}}  {_worker(worker, at)}" for worker in workers]
        lines += _budgets(standing)
        streams = [_stream(s, at) for s in standing.get("streams", ()) if _begun(s)]
        lines += ["streams, in units:", *streams] if streams else []
    if standing["resume"]:
        lines.append(f"go on from step {standing['checkpoint']}: {standing['resume']}")
    return "\n".join(lines)


def _head(standing: Mapping[str, Any], now: float) -> str:
    state = standing["state"]
    if state == "running":
        state = f"running (process {standing['pid']})"
    elif state == "dead":
        state = "dead: it was killed before it could say why"
    parts = [f"{standing['run_dir']}: {state}"]
    if "step" in standing:
        parts.append(f"step {standing['step']} of {standing['steps']}")
        parts.append(f"weights of version {standing['version']}")
    if standing["told"] and standing["state"] == "dead":
        parts.append(f"last known {duration(now - standing['told'])} ago")
    if standing["restarts"]:
        parts.append(f"{standing['restarts']} restarts")
    return ", ".join(parts)


def _worker(worker: Mapping[str, Any], now: float) -> str:
    words = [worker["state"]]
    held = [_held(hold) for hold in worker["holds"]]
    words += [f"on {' and '.join(held)}"] if held else []
    if worker["waits_for"]:
        whom = f" from {', '.join(worker['from'])}" if worker["from"] else ""
        words.append(f"for {worker['waits_for']}{whom}")
    if now - worker["since"] >= QUIET_S and worker["state"] != "ended":
        words.append(f"for {duration(now - worker['since'])}")
    line = " ".join(words) + "".join(_pool(worker))
    if worker["no_beat_since"] is not None:
        line += f"; NO SIGN OF LIFE for {duration(now - worker['no_beat_since'])}"
    return line


def _budgets(standing: Mapping[str, Any]) -> list[str]:
    """What each worker may keep; none of a run that was told of by an older version."""
    if not standing.get("pool_bytes"):
        return []
    kept = budgets(standing["pool_bytes"], standing["spill_bytes"])
    return [f"each worker may keep {kept} of its records"]


def _pool(worker: Mapping[str, Any]) -> list[str]:
    """What of the worker's records is not consumed yet, and what it keeps of others'."""
    parts = []
    pool = worker.get("pool")
    if pool and pool["blocks"]:
        blocks = f"{pool['blocks']} {'block' if pool['blocks'] == 1 else 'blocks'}"
        parts.append(f"; pool {_mib(pool['bytes'])} of {_mib(pool['budget'])} MiB in {blocks}")
    for kept in worker.get("keeps", ()):
        blocks = f"{kept['blocks']} {'block' if kept['blocks'] == 1 else 'blocks'}"
        parts.append(
            f"; {kept['task']} keeps {blocks}, {_mib(kept['bytes'])} MiB, of stream "
            f"{kept['stream']} after its work was done"
        )
    return parts


def _mib(nbytes: int) -> str:
    """Mebibytes, to three digits or the last one."""
    mib = nbytes / (1 << 20)
    return f"{mib:,.0f}" if mib >= 100 else f"{mib:.3g}"


def _begun(stream: Mapping[str, Any]) -> bool:
    """Whether anything of it is there or being made: of steps far ahead nothing is."""
    return bool(stream["ready"] + stream["running"] + stream["done"] or stream["from"])


def _held(hold: Mapping[str, Any]) -> str:
    samples = hold["samples"]
    if not samples:
        return str(hold["task"])
    return f"{hold['task']} ({'sample' if samples.isdigit() else 'samples'} {samples})"


def _stream(stream: Mapping[str, Any], now: float) -> str:
    what = ", ".join(stream["streams"])
    if stream["step"] < 0:
        return f"  {what}: {stream['ready']} samples let in, {stream['running']} blocks looked at"
    counts = ", ".join(
        f"{stream[name]} {name}" for name in ("done", "running", "ready", "waiting") if stream[name]
    )
    kind = "evaluation at step" if stream["evaluation"] else "step"
    line = f"  {kind} {stream['step']}, {what} to {stream['task']}: {counts or 'empty'}"
    if stream["waiting"] and stream["from"]:
        line += f" for {', '.join(stream['from'])}"
    if stream["running"] + stream["waiting"] and now - stream["since"] >= QUIET_S:
        line += f", unmoved for {duration(now - stream['since'])}"
    return line


def _outcome(folder: Path) -> dict[str, Any]:
    file = folder / "outcome.json"
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}
