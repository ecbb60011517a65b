"""What one more or one fewer device would change, in sentences."""

from collections.abc import Iterator

from flowgraph.ir.plan import Neighbour, Plan
from flowgraph.passes.words import seconds_text

SAME = 5e-3
"""Share of a step below which two are told as the same: no prediction is closer."""

MOST_CHANGES = 6


def neighbour_words(plan: Plan) -> Iterator[str]:
    """One sentence for each."""
    for neighbour in plan.neighbours:
        yield neighbour_sentence(plan, neighbour)


def neighbour_sentence(plan: Plan, neighbour: Neighbour) -> str:
    count = f"{neighbour.devices:+d} {neighbour.kind}"
    if neighbour.refusal:
        return f"{count}: no plan, since {neighbour.refusal}"
    before, after = plan.prediction.step_seconds, neighbour.step_seconds
    if abs(after - before) <= SAME * before:
        said = f"a step still takes {seconds_text(before)}"
    else:
        change = f" ({after / before - 1:+.0%})" if before else ""
        said = f"a step takes {seconds_text(after)}{change}"
    changes = [f"{group} {change}" for group, change in neighbour.changes.items()]
    more = f" and {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
    then = f"; {', '.join(changes[:MOST_CHANGES])}{more}" if changes else "; nothing else changes"
    return f"{count}: {said}{then}"
