"""What a plan may say and this runtime does not do yet: refused by name before a run starts."""

from collections.abc import Callable, Iterator

from flowgraph.ir.errors import PlanError
from flowgraph.ir.plan import Layout, Plan

RunFaults = Iterator[PlanError]
RunRule = Callable[[Plan], RunFaults]


def layouts_split_the_data(plan: Plan) -> RunFaults:
    """A run splits the data over ranks, not a model."""
    for group in plan.groups:
        split = [f"{way}={n}" for way, n in _ways(group.layout) if n > 1]
        if split:
            yield PlanError(
                f"group {group.name!r}: its layout has {', '.join(split)}, and runs split the data "
                "only (dp)",
                hint=f"compile again with {_pins(group.name, split)}",
                node=f'group "{group.name}"',
                term="layout",
            )


def activations_are_kept(plan: Plan) -> RunFaults:
    """A run keeps activations for the backward pass."""
    for group in plan.groups:
        if group.layout.recompute:
            yield PlanError(
                f"group {group.name!r}: its layout computes activations again, which runs do not",
                hint="a smaller micro_batch",
                node=f'group "{group.name}"',
                term="recompute",
            )


def devices_are_not_shared(plan: Plan) -> RunFaults:
    """In a run no group takes turns with another one."""
    for group in plan.groups:
        if group.shares:
            yield PlanError(
                f"group {group.name!r} takes turns with {group.shares!r} on the same devices, "
                "which runs do not",
                hint="a cluster with a device for each group",
                node=f'group "{group.name}"',
                term="shares",
            )


def weights_are_current(plan: Plan) -> RunFaults:
    """A run is synchronous: what is trained was made by the version before its update."""
    for stream in plan.graph.streams:
        if stream.kind == "weights" and stream.delay > 1:
            yield PlanError(
                f"stage {stream.producer!r} declares staleness={stream.delay - 1}, and runs are "
                "synchronous",
                at=plan.graph.stage(stream.producer).at,
                hint="staleness=0",
                node=f'stage "{stream.producer}"',
                term="staleness",
            )


RUN_RULES: tuple[RunRule, ...] = (
    layouts_split_the_data,
    activations_are_kept,
    devices_are_not_shared,
    weights_are_current,
)


def _ways(layout: Layout) -> list[tuple[str, int]]:
    return [("tp", layout.tp), ("pp", layout.pp), ("cp", layout.cp)]


def _pins(group: str, split: list[str]) -> str:
    subject, _, kind = group.rpartition(".")
    names = [way.partition("=")[0] for way in split]
    prefix = "engine_" if kind == "engine" else ""
    return " ".join(f"--pin {subject}.{prefix}{name}=1" for name in names)


def unrunnable(plan: Plan) -> RunFaults:
    """One error for each thing that compiling, inspecting and simulating allow, and running not."""
    for rule in RUN_RULES:
        yield from rule(plan)


def verify_runnable(plan: Plan) -> None:
    """Raises PlanError for the first thing that a run cannot do."""
    for fault in unrunnable(plan):
        raise fault
