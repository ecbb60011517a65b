"""match-throughput: how many processes each engine and each gang gets, and in which layout."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flowgraph.ir.errors import InternalError, PlanError
from flowgraph.passes.bind_agents import BindAgents
from flowgraph.passes.demand import accelerated, used_agents
from flowgraph.passes.headroom import headrooms
from flowgraph.passes.layout_options import asked
from flowgraph.passes.layouts import named
from flowgraph.passes.match_refusals import accelerators, refusal, unlayable
from flowgraph.passes.matching.ilp import Undecided
from flowgraph.passes.matching.problem import Option, Part, Problem, Solution, check
from flowgraph.passes.matching.solve import solve
from flowgraph.passes.prediction import step_seconds
from flowgraph.passes.seating import nodes_of
from flowgraph.passes.sharing import sharings
from flowgraph.passes.state import Choices, LaidOut, Sharing, State
from flowgraph.passes.words import counted, listed, seconds_text
from flowgraph.passes.works import gang_modules, only_models

LEAST_SECONDS = 1e-9
"""A part without work is as fast as this."""


@dataclass(frozen=True, slots=True)
class MatchThroughput:
    """Requires costs. Ensures `counts`, processes of every engine and gang, each at least one, and
    on accelerators `layouts`, with the micro-batch that goes with each.

    On accelerators: the step rate (of the slowest part) is the highest that devices, nodes and
    memory allow, then the others are no faster than they need, then devices are as few as give
    both; a gap that the solver leaves is stated. On CPUs cores are shared, and a second process of
    a part takes from the others what it gains: one each, unless asked or pinned.
    Changes nothing else.
    """

    solver: str = "highs"
    seconds: float = 20.0
    name: ClassVar[str] = "match-throughput"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        if not accelerated(state):
            return choices.onto(state, counts=_shared(state, choices))
        problem, sharing = matching_problem(state), Sharing()
        try:
            solution = solve(problem, solver=self.solver, seconds=self.seconds)
        except Undecided as error:
            raise PlanError(
                f"no plan for cluster {state.cluster.name!r} was found in {self.seconds:g} s, and "
                "none was ruled out",
                hint="pins that leave less to choose, such as a module's tp",
            ) from error
        if solution is None:
            problem, solution, sharing = self._shared(state, problem)
        if wrong := check(problem, solution):
            raise InternalError("match-throughput: " + "; ".join(wrong))
        matched = _matched(state, solution, sharing)
        _record(state, choices, solution, matched.layouts, sharing)
        return choices.onto(matched)

    def _shared(self, state: State, problem: Problem) -> tuple[Problem, Solution, Sharing]:
        """Of the numbers of groups that trainers may share, that with the shortest step."""
        found: tuple[Problem, Solution, Sharing] | None = None
        least = math.inf
        for made in sharings(state, problem, solver=self.solver, seconds=self.seconds):
            # What a sharing is worth shows in who waits for whom: who is where, in which turn.
            bound = BindAgents(self.solver).apply(_matched(state, made[1], made[2]))
            if (seconds := step_seconds(bound)) < least:
                found, least = made, seconds
        if found is None:
            raise refusal(state, problem)
        return found


def _matched(state: State, solution: Solution, sharing: Sharing) -> State:
    """The state with what the solution says."""
    chosen = _chosen(state, solution, sharing)
    costs = {
        part: replace(
            state.costs[part],
            seconds=option.seconds,
            memory_bytes=option.memory_bytes,
            terms=option.terms,
        )
        for part, option in chosen.items()
    }
    return replace(
        state,
        graph=_with_micro_batches(state, chosen),
        counts={part: option.devices for part, option in chosen.items()},
        layouts=chosen,
        costs={**state.costs, **costs},
        sharing=sharing,
        bound_seconds=1.0 / solution.bound,
    )


def _chosen(state: State, solution: Solution, sharing: Sharing) -> dict[str, LaidOut]:
    """Each group's layout, those that take turns included."""
    found: dict[str, LaidOut] = {}
    for part, choice in solution.choices.items():
        if part in sharing.members:
            found.update(sharing.laid[part][int(choice.option.name)])
        else:
            found[part] = state.options[part][int(choice.option.name)]
    return found


def parts_of(state: State) -> tuple[tuple[str, str, str], ...]:
    """(group, whose decision it is, the decision's name) of each engine and gang."""
    engines = [(f"{a.name}.engine", a.name, "engines") for a in used_agents(state.graph)]
    gangs = [(f"{m.name}.gang", m.name, "ranks") for m in gang_modules(state)]
    return (*engines, *gangs)


def _shared(state: State, choices: Choices) -> Mapping[str, int]:
    """Processes on cores that all share."""
    for subject, ways in (
        *((a.name, ("engine_tp",)) for a in used_agents(state.graph)),
        *((m.name, ("tp", "pp", "cp")) for m in gang_modules(state)),
    ):
        for way in ways:
            if (state.pins.get(subject, way) or 1) > 1:
                raise PlanError(
                    f"pin {subject}.{way}={state.pins.get(subject, way)}: cores take whole models, "
                    f"and cluster {state.cluster.name!r} has no accelerators",
                    hint=f"{subject}.ranks={state.pins.get(subject, way)}, which splits the data",
                )
            if state.pins.get(subject, way):
                choices.choose(subject, way, 1, "cores take whole models")
    counts = {}
    models = only_models(state)
    wanted = {f"{m.name}.gang": asked(models, m) for m in gang_modules(models)}
    for group, subject, decision in parts_of(state):
        count = wanted.get(group) or 1
        because = (
            f"devices={count} in the graph"
            if count > 1
            else "cores are shared: a second process would take from the others"
        )
        dp = state.pins.get(subject, "dp")
        if decision == "ranks" and dp and not state.pins.get(subject, "ranks"):
            counts[group] = choices.choose(subject, "dp", count, because)
        else:
            counts[group] = choices.choose(subject, decision, count, because)
    return counts


def matching_problem(state: State) -> Problem:
    """Each part's layouts as options, by their place in `state.options`."""
    room = headrooms(state)
    parts = []
    for group, subject, _ in parts_of(state):
        options = tuple(
            Option(
                name=str(i),
                kind=option.kind,
                rate=1.0 / max(LEAST_SECONDS, option.seconds * room.get(group, 1.0)),
                piece=option.layout.tp,
                pieces=option.devices // option.layout.tp,
                most=1,
            )
            for i, option in enumerate(state.options[group])
        )
        if not options:
            raise unlayable(state, group, subject)
        parts.append(Part(name=group, options=options))
    return Problem(parts=tuple(parts), nodes=nodes_of(state.cluster))


def _with_micro_batches(state: State, chosen: Mapping[str, LaidOut]) -> Any:
    """The graph with the micro-batches that go with the layouts."""
    micro = {part: option.micro_batch for part, option in chosen.items() if option.micro_batch}
    stages = tuple(
        replace(stage, attributes={**stage.attributes, "micro_batch": size})
        if stage.op == "train"
        and (size := micro.get(f"{stage.modules[0]}.gang", 0))
        and size < stage.attributes.get("micro_batch", size)
        else stage
        for stage in state.graph.stages
    )
    return state.graph if stages == state.graph.stages else replace(state.graph, stages=stages)


def _record(
    state: State,
    choices: Choices,
    solution: Solution,
    chosen: Mapping[str, LaidOut],
    sharing: Sharing,
) -> None:
    slack = f"{solution.slack / solution.rate:.1%} of it" if solution.slack else "none"
    basis = "proved by counting" if solution.gap <= 0 else "found by counting"
    how = basis if solution.by == "bisection" else f"by {solution.by}"
    gap = "no plan is faster" if solution.gap <= 0 else f"at most {solution.gap:.1%} slower"
    choices.choose("step", "rate", f"{solution.rate:.4g} a second", f"{gap} ({how}); slack {slack}")
    choices.choose(
        "step",
        "devices",
        solution.devices,
        f"of {accelerators(state)}; {_said(sharing, solution.slowest)} is the slowest part",
    )
    turns = {name: group for group, own in sharing.members.items() for name in own}
    for group, subject, decision in parts_of(state):
        option = chosen[group]
        if group in turns:
            others = [name for name in sharing.members[turns[group]] if name != group]
            why = f"{accelerators(state)} devices are too few: takes turns with " + (
                ", ".join(others) or "nobody"
            )
        else:
            why = _why(state, solution, sharing, group, option)
        count = option.replicas if decision == "engines" else option.layout.ranks
        choices.choose(subject, decision, count, why, _runner_up(state, group, option))
        for way in ("engine_tp",) if decision == "engines" else ("dp", "tp", "pp", "cp"):
            if state.pins.get(subject, way):
                choices.choose(subject, way, getattr(option.layout, way[-2:]), why)
        if option.layout.ranks > 1:
            bytes_ = f"{option.memory_bytes / 2**30:.3g} GiB a device"
            choices.choose(group, "layout", named(option.layout), f"{bytes_}, on {option.kind}")


def _why(state: State, solution: Solution, sharing: Sharing, group: str, option: LaidOut) -> str:
    if group != solution.slowest:
        slowest = _said(sharing, solution.slowest)
        return f"{seconds_text(option.seconds)} a step, no slower than {slowest}"
    took = seconds_text(option.seconds)
    faster = [o for o in state.options[group] if o.seconds < option.seconds]
    if not faster:
        return f"the slowest part, {took} a step; no layout of it is faster"
    least = min(faster, key=lambda o: o.devices)
    if solution.devices - option.devices + least.devices > accelerators(state):
        return (
            f"the slowest part, {took} a step; {least.devices} devices for it leave too few for "
            "the rest"
        )
    return f"the slowest part, {took} a step; the rest is no faster with less"


def _said(sharing: Sharing, part: str) -> str:
    """A part's name, or those of the gangs that take turns as one."""
    return f"{listed(sharing.members[part])} in turn" if part in sharing.members else part


def _runner_up(state: State, group: str, option: LaidOut) -> str | None:
    """The fastest with fewer devices, and how much slower that is."""
    fewer = [o for o in state.options[group] if o.devices < option.devices]
    if not fewer:
        return None
    best = min(fewer, key=lambda o: (o.seconds, o.devices))
    worse = best.seconds / option.seconds - 1
    return f"{counted(best.devices, 'device')} as {named(best.layout)}, {worse:+.1%} time"
