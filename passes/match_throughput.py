"""match-throughput: how many processes each engine and each gang gets."""

import math
from dataclasses import dataclass
from typing import ClassVar

from flowgraph.ir.errors import InternalError, PlanError
from flowgraph.ir.graph import Module
from flowgraph.passes.allocate import Part, Problem, Solution, allocate, check
from flowgraph.passes.demand import accelerated, batch_of, unit_of, updates_of, used_agents
from flowgraph.passes.estimate_costs import gang_modules
from flowgraph.passes.state import Choices, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A group, the pin that fixes its size, what the graph asks for, and the most that helps."""

    group: str
    subject: str
    decision: str
    asked: int
    most: int


@dataclass(frozen=True, slots=True)
class MatchThroughput:
    """Requires costs. Ensures `counts`: processes of every engine and gang, each at least one.

    On accelerators: the step rate (of the slowest part) is the highest that the devices allow,
    then as few devices as give it. On CPUs cores are shared, and a second process of a part takes
    from the others what it gains: one each, unless asked or pinned. Changes nothing else.
    """

    name: ClassVar[str] = "match-throughput"

    def apply(self, state: State) -> State:
        wishes = _wishes(state)
        choices = Choices(self.name, state.pins)
        shared = not accelerated(state)
        solution = None if shared else _solve(state, wishes)
        counts = {}
        for wish in wishes:
            if wish.asked > 1:
                count, because = wish.asked, f"devices={wish.asked} in the graph"
            elif solution is None:
                count, because = 1, "cores are shared: a second process would take from the others"
            else:
                count, because = solution.counts[wish.group], _why(state, wish, solution)
            counts[wish.group] = choices.choose(wish.subject, wish.decision, count, because)
        return choices.onto(state, counts=counts)


def _wishes(state: State) -> tuple[Wish, ...]:
    units = math.ceil(batch_of(state.graph) / updates_of(state.graph) / unit_of(state.graph)[0])
    engines = [
        Wish(
            group=f"{agent.name}.engine",
            subject=agent.name,
            decision="engines",
            asked=1,
            most=batch_of(state.graph),
        )
        for agent in used_agents(state.graph)
    ]
    gangs = [
        Wish(
            group=f"{module.name}.gang",
            subject=module.name,
            decision="ranks",
            asked=_asked(state, module),
            most=units,
        )
        for module in gang_modules(state)
    ]
    return (*engines, *gangs)


def _asked(state: State, module: Module) -> int:
    """Devices that the graph wants for the module's gang."""
    users = [s for s in state.graph.stages if s.op in ("train", "apply") and s.modules]
    return max((s.devices for s in users if s.modules[0] == module.name), default=1)


def _solve(state: State, wishes: tuple[Wish, ...]) -> Solution:
    fixed = {
        wish.group: state.pins.get(wish.subject, wish.decision)
        or (wish.asked if wish.asked > 1 else 0)
        for wish in wishes
    }
    parts = tuple(
        Part(
            name=wish.group,
            seconds=state.costs[wish.group].seconds,
            least=fixed[wish.group] or 1,
            most=fixed[wish.group] or max(1, wish.most),
        )
        for wish in wishes
    )
    problem = Problem(parts=parts, devices=accelerators(state))
    solution = allocate(problem)
    if solution is None:
        asked = " + ".join(f"{part.name} {part.least}" for part in parts)
        needed = sum(part.least for part in parts)
        raise PlanError(
            f"the plan needs {needed} devices at least ({asked}), cluster {state.cluster.name!r} "
            f"has {problem.devices}",
            hint=f"a cluster with {needed - problem.devices} more devices, or fewer pinned",
        )
    if wrong := check(problem, solution):
        raise InternalError("match-throughput: " + "; ".join(wrong))
    return solution


def accelerators(state: State) -> int:
    """One-device workers that fit on the accelerators."""
    nodes = [(node, state.cluster.kind(node.device)) for node in state.cluster.nodes]
    return sum(node.devices * kind.slots for node, kind in nodes if kind.kind != "cpu")


def _why(state: State, wish: Wish, solution: Solution) -> str:
    seconds = state.costs[wish.group].seconds / solution.counts[wish.group]
    if wish.group == solution.slowest:
        devices, used = accelerators(state), sum(solution.counts.values())
        if used < devices and solution.counts[wish.group] >= wish.most:
            return f"the slowest part, {seconds:.3g} s a step; a step has no more units than that"
        return f"the slowest part, {seconds:.3g} s a step, with all {devices} devices given out"
    return f"{seconds:.3g} s a step, no slower than {solution.slowest}"
