"""A plan in words and tables: who runs what where, over which channels, and why."""

import textwrap
from collections.abc import Sequence

from flowgraph.ir.plan import Decision, Plan, WorkerGroup
from flowgraph.passes.pipeline import PIPELINE
from flowgraph.passes.words import counted, ranges, seconds_text, size_text

WIDTH = 100


def explain(plan: Plan) -> str:
    """Plain text, about 100 columns wide but for long reasons; deterministic."""
    parts = [
        _headline(plan),
        _table(
            ("group", "processes", "holds", "takes", "a step", "memory", "where"), _groups(plan)
        ),
        _rooms(plan),
        _tasks(plan),
        _table(("channel", "kind", "transport", "budget", "records"), _channels(plan)),
        _decisions(plan),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(plan: Plan) -> str:
    schedule, cluster = plan.schedule, plan.cluster
    processes = sum(group.replicas for group in plan.groups)
    cores = sum(node.cores for node in cluster.nodes)
    return "\n".join(
        [
            f"{plan.graph.name} on {cluster.name}: {counted(processes, 'worker')} and the "
            f"orchestrator, {counted(len(cluster.nodes), 'node')}, "
            f"{counted(cluster.total_devices, 'device')}, {counted(cores, 'core')}",
            f"a step: {schedule.batch} samples, {counted(schedule.updates, 'update')}, in units of "
            f"{schedule.unit} (exact: chunks of {schedule.chunk}), {schedule.mode}, about "
            f"{seconds_text(plan.prediction.step_seconds)} ({_basis(plan)})",
            _consistency(plan),
        ]
    )


def _basis(plan: Plan) -> str:
    """What the predicted seconds rest on."""
    measured = set(plan.prediction.measured)
    names = {group.name for group in plan.groups}
    if not measured & names:
        return "estimated"
    left = sorted(names - measured)
    return f"measured; estimated: {', '.join(left)}" if left else "measured"


def _consistency(plan: Plan) -> str:
    late = {s.name.removesuffix(".weights"): s.delay - 1 for s in plan.graph.streams if s.delay > 1}
    if not late:
        return "training is synchronous: a step trains what its own version made"
    shown = ", ".join(f"{name} by {count}" for name, count in late.items())
    return f"training is late by a bounded number of updates: {shown}"


def _groups(plan: Plan) -> list[Sequence[str]]:
    memory, seconds = plan.prediction.memory_bytes, plan.prediction.seconds
    return [
        (
            group.name,
            str(group.replicas),
            group.module or "user code",
            f"{group.slots} rows of {group.max_length}"
            if group.kind == "engine"
            else _holds(group),
            seconds_text(seconds.get(group.name, 0.0)),
            size_text(memory.get(group.name, 0)),
            _places(group),
        )
        for group in plan.groups
    ]


def _holds(group: WorkerGroup) -> str:
    return f"{group.in_flight} {'samples' if group.kind == 'stage' else 'units'}"


def _places(group: WorkerGroup) -> str:
    """Nodes with the devices used on each: `n0:0-3`."""
    nodes: dict[str, list[int]] = {}
    for place in group.places:
        nodes.setdefault(place.node, []).append(place.device)
    shown = [
        name if devices == [-1] * len(devices) else f"{name}:{ranges(sorted(set(devices)))}"
        for name, devices in nodes.items()
    ]
    return " ".join(shown[:4]) + (f" and {len(shown) - 4} more nodes" if len(shown) > 4 else "")


def _rooms(plan: Plan) -> str:
    """Groups that may move at run time, and trainers that take turns."""
    lines = []
    for room in plan.rooms:
        if room.least < room.most:
            lines.append(
                f"  {room.group} may have {room.least} to {room.most} processes; a move costs "
                f"{seconds_text(room.move_seconds)}"
            )
    for group in plan.groups:
        if group.shares:
            lines.append(
                f"  {group.name} takes turn {group.turn} on the devices of {group.shares}, "
                f"{group.residency} between turns"
            )
    balance = plan.balance
    if any(room.least < room.most for room in plan.rooms):
        lines.append(
            f"  moves follow {balance.by}: from {balance.excess:g} times an agent's share on, for "
            f"{balance.gain:g} s saved a second spent"
        )
    return "\n".join(["room to move", *lines]) if lines else ""


def _tasks(plan: Plan) -> str:
    """A few short lines a task, since it may have many stages."""
    lines = ["tasks"]
    for task in plan.tasks:
        when = _order(task.versioned, task.gated, plan.schedule.ahead)
        lines.append(f"  {task.name}, in {task.group}, {when}")
        lines += _filled("stages", " > ".join(task.stages))
        lines += _filled("reads", ", ".join(task.inputs))
        lines += _filled("makes", ", ".join(task.outputs))
    return "\n".join(lines)


def _filled(head: str, text: str) -> list[str]:
    indent = " " * 12
    return (
        textwrap.wrap(
            f"    {head:<8}{text}", WIDTH, subsequent_indent=indent, break_on_hyphens=False
        )
        if text
        else []
    )


def _order(versioned: bool, gated: bool, ahead: int) -> str:
    when = "at the step's version" if versioned else f"up to {ahead} steps ahead"
    return when if gated else f"{when}, decides membership"


def _channels(plan: Plan) -> list[Sequence[str]]:
    return [
        (
            channel.stream,
            channel.kind,
            channel.transport,
            size_text(channel.capacity_bytes),
            str(channel.capacity_records),
        )
        for channel in plan.channels
    ]


def _decisions(plan: Plan) -> str:
    """By pass, in the pipeline's order."""
    by_pass: dict[str, list[Decision]] = {step.name: [] for step in PIPELINE}
    for decision in plan.decisions:
        by_pass.setdefault(decision.by, []).append(decision)
    lines = ["decisions"]
    for name, decisions in by_pass.items():
        if decisions:
            lines += [f"  {name}", *(f"    {decision}" for decision in decisions)]
    return "\n".join(lines) if len(lines) > 1 else ""


def _table(head: Sequence[str], rows: list[Sequence[str]]) -> str:
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
