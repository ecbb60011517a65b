"""What the user should know of a plan before it runs, and what refuses to start it."""

from collections.abc import Iterator

from flowgraph.cli.changed_code import changes
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan


def remarks(plan: Plan, *, exact: bool, spill: int = 0) -> Iterator[str]:
    """Warnings and notes, a line each. spill: bytes on disk that each worker may take.

    Raises ConfigurationError for code that is gone and, under `--exact`, for code that changed.
    """
    for change in changes(plan.graph):
        if change.gone:
            raise ConfigurationError(str(change), hint="compile again")
        if exact:
            raise ConfigurationError(str(change), hint="compile again, or run without --exact")
        yield f"warning: {change}"
    cluster = plan.cluster
    if len(cluster.nodes) > 1 or any(kind.kind != "cpu" for kind in cluster.kinds):
        yield (
            f"note: the plan is for cluster {cluster.name} ({cluster.total_devices} devices on "
            f"{len(cluster.nodes)} nodes); all its workers run on this machine's cores"
        )
    if spill:
        writers = sum(group.replicas for group in plan.groups if group.kind != "engine")
        yield (
            f"note: {writers} workers may keep {spill / 1e9:.3g} GB each on disk, "
            f"{writers * spill / 1e9:.3g} GB in all, of what their pools of "
            f"{plan.pool_bytes >> 20} MiB have no room for"
        )
