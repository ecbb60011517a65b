"""Which passes to run and to show: names of passes, and the texts that passes leave behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import click

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.passes.pipeline import PIPELINE, plan_of
from flowgraph.passes.state import Pass, State
from flowgraph.passes.state_text import comments, state_text

ALL = "all"


def pass_names() -> list[str]:
    """All passes, in the order in which they run."""
    return [step.name for step in PIPELINE]


def passes_to(name: str, option: str) -> tuple[Pass, ...]:
    """The pipeline from its first pass to the named one.

    Raises ConfigurationError, which lists the passes, when there is none of that name.
    """
    known = pass_names()
    _check(name, known, option)
    return PIPELINE[: known.index(name) + 1]


def passes_shown(names: Sequence[str], option: str) -> frozenset[str]:
    """The named passes, or all. Raises ConfigurationError as `passes_to` does."""
    known = pass_names()
    for name in names:
        _check(name, [*known, ALL], option)
    return frozenset(known if ALL in names else names)


def _check(name: str, known: Sequence[str], option: str) -> None:
    if name not in known:
        raise ConfigurationError(
            f"{option} {name}: there is no such pass", hint=f"one of {', '.join(known)}"
        )


@dataclass(slots=True)
class PassTexts:
    """Watches passes run: prints the text after each of `shown`, and keeps what was reached.

    declared: the graph before the first pass. named: passes whose decisions `text` tells.
    """

    declared: Graph
    shown: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    state: State | None = None
    told: list[str] = field(default_factory=list)

    def __call__(self, name: str, after: State) -> None:
        before = self.state or State(
            graph=self.declared, cluster=after.cluster, pins=after.pins, measured=after.measured
        )
        self.state = after
        if name in self.shown:
            click.echo(state_text(name, before, after, whole(after)), nl=False)
        if name in self.named:
            self.told += comments(name, before, after, whole(after))

    @property
    def graph(self) -> Graph:
        """The last one that was legal."""
        return self.state.graph if self.state else self.declared

    def text(self, plan: Plan | None = None) -> str:
        """What the passes made, below what the named ones decided. plan: what all of them made."""
        from flowgraph.ir.text import print_text

        made = plan or (whole(self.state) if self.state else self.declared)
        return "".join(f"# {line}\n" for line in self.told) + print_text(made)


def whole(state: State) -> Graph | Plan:
    """All that a text must hold to be taken up again: the plan once there is one."""
    if state.schedule is not None:
        return plan_of(state)
    return replace(state.graph, pins=dict(state.pins.values))
