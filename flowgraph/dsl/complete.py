"""What can be said only when the whole graph is declared."""

from flowgraph.dsl.draft import Draft
from flowgraph.ir.errors import GraphError


def check_complete(draft: Draft) -> None:
    """Every stream is read and every module used. Raises GraphError at the declaring line."""
    if not draft.stages:
        raise GraphError(
            f"graph '{draft.name}' has no stages", hint='start with g.source("tasks", function)'
        )
    _check_streams(draft)
    _check_modules(draft)


def _check_streams(draft: Draft) -> None:
    read = {stream for stage in draft.stages.values() for stream in stage.inputs}
    for stage in draft.stages.values():
        if stage.op == "episodes" and not stage.outputs:
            raise GraphError(
                f"episodes '{stage.name}': nothing reads the rows of its agents",
                at=stage.at,
                hint=f'.rows({stage.agents[0]}).group(by="task").train(...)',
            )
    for stream in draft.streams.values():
        if stream.name not in read:
            raise GraphError(
                f"stream '{stream.name}' is read by nothing",
                at=stream.at,
                hint="end it with .train(...) or .sink(...), or leave it out",
            )


def _check_modules(draft: Draft) -> None:
    used = {module for stage in draft.stages.values() for module in stage.modules}
    used |= {str(stage.attributes.get("reference", "")) for stage in draft.stages.values()}
    played = {agent for stage in draft.stages.values() for agent in stage.agents}
    used |= {draft.agents[agent].module for agent in played}
    for module in draft.modules.values():
        if module.name not in used:
            raise GraphError(
                f"module '{module.name}' is used by nothing",
                at=module.at,
                hint="apply it, train it or play with it, or leave it out",
            )
