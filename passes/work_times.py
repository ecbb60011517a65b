"""Seconds of each kind of work under the chosen layouts, which the simulator hands out work by.

A simulated rank works alone. Where ranks work together on a token (tp, pp, cp), it gets the time
that makes all of them as fast as their layout is: a token takes each as long as it takes the ranks
together, times their number.
"""

from collections.abc import Mapping

from flowgraph.ir.index import attribute, index
from flowgraph.ir.plan import Layout, WorkerGroup
from flowgraph.passes.demand import used_agents
from flowgraph.passes.layout_costs import HOP_SECONDS, Place, gradients_s, split_times
from flowgraph.passes.sharing import swap_seconds
from flowgraph.passes.state import State
from flowgraph.passes.tasks import form_tasks
from flowgraph.passes.works import engine_work, gang_modules, gang_work, only_models, places_of
from flowgraph.runtime.policy.step_time import update_seconds

ENGINE = ("prefill_s", "prefill_token_s", "iteration_s", "row_s", "read_s", "row_read_s", "load_s")


def work_times(state: State) -> Mapping[str, float]:
    """By `group.quantity`, as `Prediction.times` has them. Requires groups."""
    models = only_models(state)
    groups = {group.name: group for group in state.groups}
    places = {place.kind: place for place in places_of(state)}
    found: dict[str, float] = {}
    if measured := state.measured.get("host", "sample_s", _core(state)):
        found["host.sample_s"] = measured.value / _tries(state)
    for agent in used_agents(state.graph):
        group = groups[f"{agent.name}.engine"]
        place = _place(state, group, places)
        work = engine_work(models, agent, place)
        ways = group.layout.tp
        values = {name: getattr(work.times, name) for name in ENGINE}
        values |= {name: values[name] / ways for name in ("read_s", "load_s")}
        values["iteration_s"] += _trips(ways) * work.model.shape.layers * HOP_SECONDS
        moved = _trips(ways) * work.model.shape.layers * 2 * (ways - 1) / ways
        token = moved * work.model.shape.width * work.model.shape.bytes / place.link(ways)
        values["row_s"] += ways * token
        values["prefill_token_s"] += ways * token
        found |= {f"{group.name}.{name}": value for name, value in values.items()}
    for module in gang_modules(models):
        group = groups[f"{module.name}.gang"]
        place = _place(state, group, places)
        found |= _gang_times(models, group, place)
    return found


def _gang_times(models: State, group: WorkerGroup, place: Place) -> Mapping[str, float]:
    """record_s: of a record that has no tokens."""
    work = gang_work(models, models.graph.module(group.module), place)
    layout = group.layout
    laid = models.layouts.get(group.name)
    micro = (laid.micro_batch if laid else 0) or work.micro
    batches = max(1.0, work.tokens / layout.dp / micro)
    times = split_times(work, layout, place, batches)
    ranks = layout.tp * layout.pp * layout.cp
    values = {
        "token_s": times.token_s * ranks,
        "item_s": times.item_s * ranks,
        "record_s": times.token_s * ranks * work.model.length,
    }
    if work.trained:
        update = update_seconds(work.model.shape, place.device) / _split(layout)
        values["update_s"] = update + gradients_s(work, layout, place)
    if laid and group.residency != "resident":
        values["swap_s"] = swap_seconds(laid)
    return {f"{group.name}.{name}": value for name, value in values.items()}


def _split(layout: Layout) -> int:
    """Ranks that the weights are split over."""
    return layout.tp * layout.pp


def _trips(ways: int) -> int:
    """All-reduces a layer of an engine's pass."""
    return 2 if ways > 1 else 0


def _place(state: State, group: WorkerGroup, places: Mapping[str, Place]) -> Place:
    """The kind of device that the group is on."""
    laid = state.layouts.get(group.name)
    return places[laid.kind] if laid else next(iter(places.values()))


def _tries(state: State) -> int:
    """Trajectories and samples that the host's tasks take of one sample together."""
    at = index(state.graph)
    return sum(
        max(
            [1]
            + [
                attribute(at.stages[name], "trajectories")
                for name in task.stages
                if at.stages[name].op == "episodes"
            ]
        )
        for task in state.tasks or form_tasks(at)
        if task.kind == "host"
    )


def _core(state: State) -> str:
    return next((kind.name for kind in state.cluster.kinds if kind.kind == "cpu"), "")
