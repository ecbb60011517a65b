"""What a plan may say and this runtime does not do yet: refused by name before a run starts."""

from collections.abc import Iterator

from flowgraph.ir.errors import PlanError
from flowgraph.ir.plan import Plan


def unrunnable(plan: Plan) -> Iterator[PlanError]:
    """One error for each thing that compiling, inspecting and simulating allow, and running not."""
    for group in plan.groups:
        layout = group.layout
        split = [f"{way}={n}" for way, n in _ways(plan, group.name) if n > 1]
        if split:
            yield PlanError(
                f"group {group.name!r}: its layout has {', '.join(split)}, and runs split the data "
                "only (dp)",
                hint=f"compile again with {_pins(group.name, split)}",
            )
        if layout.recompute:
            yield PlanError(
                f"group {group.name!r}: its layout computes activations again, which runs do not",
                hint="a smaller micro_batch",
            )
        if group.shares:
            yield PlanError(
                f"group {group.name!r} takes turns with {group.shares!r} on the same devices, "
                "which runs do not",
                hint="a cluster with a device for each group",
            )
    for stream in plan.graph.streams:
        if stream.kind == "weights" and stream.delay > 1:
            yield PlanError(
                f"stage {stream.producer!r} declares staleness={stream.delay - 1}, and runs are "
                "synchronous",
                at=plan.graph.stage(stream.producer).at,
                hint="staleness=0",
            )


def _ways(plan: Plan, group: str) -> list[tuple[str, int]]:
    layout = plan.group(group).layout
    return [("tp", layout.tp), ("pp", layout.pp), ("cp", layout.cp)]


def _pins(group: str, split: list[str]) -> str:
    subject, _, kind = group.rpartition(".")
    names = [way.partition("=")[0] for way in split]
    prefix = "engine_" if kind == "engine" else ""
    return " ".join(f"--pin {subject}.{prefix}{name}=1" for name in names)


def verify_runnable(plan: Plan) -> None:
    """Raises PlanError for the first thing that a run cannot do."""
    for fault in unrunnable(plan):
        raise fault
