"""An answer that gives a part several layouts at once, and a check of any such answer.

Law: `check_mixed` shares no code with the solver, and finds a wrong answer whoever made it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flowgraph.passes.matching.problem import EPSILON, Choice, Problem, overfull

ROUNDING = 1e-7
"""Relative: rates that a solver's tolerances do not tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """choices: by part, at least one each, of different options. Else as `Solution`."""

    choices: Mapping[str, tuple[Choice, ...]]
    rate: float
    slack: float
    devices: int
    bound: float
    by: str

    @property
    def gap(self) -> float:
        """How much faster than this an answer may be at most, as a share of the bound."""
        return 0.0 if self.bound <= self.rate * (1 + ROUNDING) else 1.0 - self.rate / self.bound


def check_mixed(problem: Problem, mixture: Mixture, whole: Collection[str] = ()) -> list[str]:
    """What is wrong with an answer; empty when nothing is."""
    wrong = []
    for part in problem.parts:
        own = mixture.choices.get(part.name, ())
        if not own or any(choice.option not in part.options for choice in own):
            wrong.append(f"{part.name} runs no options of its own")
            continue
        if len({choice.option for choice in own}) < len(own):
            wrong.append(f"{part.name} names an option twice")
        if part.name in whole and len(own) > 1:
            wrong.append(f"{part.name} runs {len(own)} options, and may run one")
        wrong += [
            f"{part.name} has {choice.replicas} replicas of {choice.option.name}"
            for choice in own
            if not choice.option.least <= choice.replicas <= choice.option.most
        ]
        rate = sum(choice.rate for choice in own)
        if rate < mixture.rate * (1 - EPSILON):
            wrong.append(f"{part.name} is slower than the {mixture.rate:g} steps/s stated")
        elif rate > (mixture.rate + mixture.slack) * (1 + EPSILON):
            wrong.append(f"{part.name} has more slack than the {mixture.slack:g} steps/s stated")
    chosen = [choice for own in mixture.choices.values() for choice in own]
    if (used := sum(choice.devices for choice in chosen)) != mixture.devices:
        wrong.append(f"{used} devices are used, {mixture.devices} stated")
    wrong += overfull(problem, chosen)
    if mixture.rate > mixture.bound * (1 + EPSILON):
        wrong.append(f"faster than its own bound of {mixture.bound:g} steps/s")
    return wrong
