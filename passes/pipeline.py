"""The compiler, read top to bottom: `compile_graph` runs `PIPELINE` and makes the plan."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.errors import FlowgraphError, InternalError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Leg, Plan, Prediction, WorkerGroup
from flowgraph.ir.verify import verify_cluster, verify_flow, verify_plan
from flowgraph.passes.bind_agents import BindAgents
from flowgraph.passes.check_consistency import CheckConsistency
from flowgraph.passes.costs import read_costs, with_measured
from flowgraph.passes.estimate_costs import EstimateCosts
from flowgraph.passes.infer_rates import InferRates
from flowgraph.passes.lower_edges import LowerEdges
from flowgraph.passes.match_throughput import MatchThroughput
from flowgraph.passes.neighbours import neighbours_of
from flowgraph.passes.pins import read_pins
from flowgraph.passes.place import PlaceGroups
from flowgraph.passes.plan_packing import PlanPacking
from flowgraph.passes.prediction import group_seconds, step_seconds, works_in_step
from flowgraph.passes.simplify import Simplify
from flowgraph.passes.state import Pass, State
from flowgraph.passes.wire import Wire
from flowgraph.passes.work_times import work_times
from flowgraph.runtime.policy.step_chain import step_chain

PIPELINE: tuple[Pass, ...] = (
    LowerEdges(),  # gradients and weights are edges like others: all later passes must see them
    InferRates(),  # what cannot balance is refused before anything is decided
    CheckConsistency(),  # so is what cannot be synchronous
    Simplify(),  # nothing is planned for stages without effect
    PlanPacking(),  # how many tokens a trainer takes at once, which activations depend on
    EstimateCosts(),  # seconds and bytes of each part
    MatchThroughput(),  # processes a part, from its seconds
    BindAgents(),  # groups of workers, from the counts
    PlaceGroups(),  # nodes and devices, once it is known how many of each
    Wire(),  # tasks and channels, once it is known who is near whom
)

BEFORE_DEVICES = PlanPacking.name
"""The last pass that does not look at the cluster."""

ON_DEVICES: tuple[Pass, ...] = (
    EstimateCosts(),
    MatchThroughput(seconds=0.0),
    BindAgents(),
    PlaceGroups(),
)
"""What is done again for a cluster with a device more or less: counting and bisection, no ILP."""

Watch = Callable[[str, State], None]


def compile_graph(
    graph: Graph,
    cluster: Cluster,
    pins: Mapping[str, Any] | None = None,
    *,
    costs: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Plan:
    """The plan of `graph` on `cluster`; deterministic.

    pins: decisions to keep, `{"solver.engines": 2}`. costs: measured numbers, see `passes.costs`.
    watch: called with each pass's name and the state after it. Raises GraphError, PlanError or
    ConfigurationError for the user's fault.
    """
    before: list[State] = []

    def watched(name: str, state: State) -> None:
        if name == BEFORE_DEVICES:
            before.append(state)
        if watch is not None:
            watch(name, state)

    plan = plan_of(run_passes(PIPELINE, graph, cluster, pins, costs=costs, watch=watched))
    # Tasks are the graph's alone: whatever the cluster, they are the same.
    start = replace(before[0], tasks=plan.tasks)
    neighbours = neighbours_of(plan, lambda other: _again(replace(start, cluster=other)))
    plan = replace(plan, neighbours=neighbours)
    try:
        verify_plan(plan)
    except FlowgraphError as error:
        raise InternalError(f"the passes made a plan that is not legal: {error.what}") from error
    return plan


def _again(state: State) -> tuple[tuple[WorkerGroup, ...], float]:
    """Groups and seconds of a step on the state's cluster."""
    for step in ON_DEVICES:
        state = _run(step, state, [BEFORE_DEVICES])
    return state.groups, step_seconds(state)


def run_passes(
    passes: tuple[Pass, ...],
    graph: Graph,
    cluster: Cluster,
    pins: Mapping[str, Any] | None = None,
    *,
    costs: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> State:
    """The state after `passes`, with the verifier before the first one and after each."""
    verify_flow(graph)
    verify_cluster(cluster)
    measured = read_costs(graph, costs or {})
    graph = with_measured(graph, measured)
    read = read_pins(graph, pins or {})
    state = State(graph=graph, cluster=cluster, pins=read, measured=measured)
    done: list[str] = []
    for step in passes:
        state = _run(step, state, done)
        done.append(step.name)
        if watch is not None:
            watch(step.name, state)
    return state


def _run(step: Pass, state: State, done: list[str]) -> State:
    """One pass and the verifier; a fault that it made is ours, and names it."""
    before = f"after {', '.join(done)}" if done else "the first"
    try:
        after = step.apply(state)
    except FlowgraphError:
        raise
    except Exception as error:
        raise InternalError(f"pass {step.name} ({before}) failed: {error!r}") from error
    if after.graph is state.graph:
        return after  # verified already: most passes only decide
    try:
        verify_flow(after.graph)
    except FlowgraphError as error:
        # Printing needs cattrs, which compiling does not: imported where it is used.
        from flowgraph.ir.diagnostics import render

        raise InternalError(
            f"pass {step.name} ({before}) made a graph that is not legal:\n"
            f"{render(error, after.graph)}"
        ) from error
    return after


def plan_of(state: State) -> Plan:
    """The plan dialect's form of what the passes decided."""
    if state.schedule is None:
        raise InternalError("the pipeline ended without a schedule: wire must be its last pass")
    return Plan(
        graph=replace(state.graph, pins=dict(state.pins.values)),
        cluster=state.cluster,
        tasks=state.tasks,
        groups=state.groups,
        channels=state.channels,
        schedule=state.schedule,
        pool_bytes=state.pool_bytes,
        prediction=predict(state),
        decisions=state.decisions,
        rooms=state.rooms,
    )


def predict(state: State) -> Prediction:
    """Expected seconds of a step, and what they are made of."""
    works = {work.name: work for work in works_in_step(state)}
    chain, step = step_chain(works.values()), step_seconds(state)
    path = chain.path if chain.seconds >= step else ()
    return Prediction(
        step_seconds=step,
        seconds=group_seconds(state),
        memory_bytes={name: cost.memory_bytes for name, cost in state.costs.items()},
        memory_terms={name: dict(cost.terms) for name, cost in state.costs.items() if cost.terms},
        rates={name: str(rate) for name, rate in state.rates.items()},
        measured=tuple(name for name, cost in state.costs.items() if cost.measured),
        times=work_times(state),
        bound_seconds=state.bound_seconds,
        path=tuple(
            Leg(work=name, group=works[name].group, seconds=seconds)
            for name, seconds in path
            if seconds > 0
        ),
    )
