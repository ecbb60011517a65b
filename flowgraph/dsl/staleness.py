"""Bounded staleness of a train stage: how far its samples' makers may lag behind, if they can."""

from collections.abc import Sequence

from flowgraph.algorithms.algorithm import Algorithm
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.location import refuse
from flowgraph.dsl.models import ModuleRef
from flowgraph.dsl.units import whole

_AHEAD = "schedule.ahead"


def bounded_staleness(
    draft: Draft,
    stream: str,
    bound: int,
    modules: Sequence[ModuleRef],
    algorithm: Algorithm,
    role: str,
) -> dict[str, int]:
    """`{"staleness": bound}`, or nothing for 0, which is synchronous.

    Raises GraphError at the user's line where nothing that is trained makes the samples, where the
    loss would take older samples for new ones, and where a pinned buffer does not let them wait.
    """
    bound = whole(bound, f"{role}: staleness, in steps", least=0)
    if bound == 0:
        return {}
    _check_lags(draft, stream, bound, modules, role)
    _check_corrected(draft, stream, bound, algorithm, role)
    ahead = draft.pins.get(_AHEAD)
    if isinstance(ahead, int) and ahead < bound:
        raise refuse(
            f"{role}: staleness={bound} needs samples of {bound} steps to wait, and {_AHEAD} is "
            f"pinned to {ahead}",
            hint=f"staleness={ahead}, or g.pin('{_AHEAD}', {bound})",
        )
    return {"staleness": bound}


def _check_lags(
    draft: Draft, stream: str, bound: int, modules: Sequence[ModuleRef], role: str
) -> None:
    """Something upstream runs with weights that this stage trains."""
    trained = {module.name for module in modules}
    for stage in draft.upstream(stream):
        used = {*stage.modules, *(draft.agents[name].module for name in stage.agents)}
        if used & trained:
            return
    raise refuse(
        f"{role}: staleness={bound}, but no sample is made by weights that are trained here, so "
        "that none can lag behind",
        hint="leave staleness out",
    )


def _check_corrected(
    draft: Draft, stream: str, bound: int, algorithm: Algorithm, role: str
) -> None:
    """A policy's loss on samples of older weights weighs them by both probabilities."""
    games = [stage for stage in draft.upstream(stream) if stage.op == "episodes"]
    if games and "behaviour_logprobs" not in algorithm.needs:
        raise refuse(
            f"{role}: staleness={bound}, but {algorithm.name} does not read with which probability "
            "a token was sampled, and would take samples of older weights for its own",
            hint="a loss that weighs them by it, fg.grpo() or fg.ppo(), or staleness=0",
        )
