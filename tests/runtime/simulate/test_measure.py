"""Times measured from a run's messages: the simulator's own messages must give its times back."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import Generate, Generated, Issued, Message
from flowgraph.runtime.orchestrator.events import Action, Event, Send
from flowgraph.runtime.orchestrator.state import State
from flowgraph.runtime.policy.step_time import EngineTimes, HostTimes, StepTimes, TaskTimes
from flowgraph.runtime.simulate import simulate
from flowgraph.runtime.simulate.fit import fit_parts
from flowgraph.runtime.simulate.measure import CpuTime, Logged, measure, read_run
from tests.passes.graphs import laptop, marl, vlm

TIMES = StepTimes(
    hosts={
        "games": HostTimes(item_s=1e-3, sample_s=2e-4, call_s=3e-4),
        "samples": HostTimes(item_s=1e-3, sample_s=2e-4),
    },
    engines={
        name: EngineTimes(prefill_s=2e-3, prefill_token_s=1e-5, iteration_s=1e-3, row_s=5e-5)
        for name in ("solver.engine", "verifier.engine")
    },
    tasks={
        "train-solver": TaskTimes(item_s=2e-3, weight_s=4e-5),
        "train-verifier": TaskTimes(item_s=1e-3, weight_s=3e-5),
        "encode": TaskTimes(
            item_s=1e-3, weight_s=1e-3, backward_item_s=2e-3, backward_weight_s=2e-3, evaluate=0.5
        ),
        "train-lm": TaskTimes(item_s=3e-3, weight_s=5e-5, evaluate=0.5),
    },
    updates={"solver": 1e-3, "verifier": 2e-3, "vit": 3e-3, "lm": 4e-3},
    saves={"solver": 0.01, "verifier": 0.01, "vit": 0.01, "lm": 0.01},
)


@cache
def agents() -> Plan:
    graph = marl(batch=8, tries=6)
    solver = replace(
        graph.agent("solver"),
        expect={"calls": 1.5, "prompt": {"mean": 8, "p95": 14}, "response": {"mean": 4, "p95": 9}},
        sampling={"max_length": 48},
    )
    graph = replace(graph, agents=(solver, *graph.agents[1:]))
    stages = tuple(
        replace(stage, attributes={**stage.attributes, "micro_batch": 512})
        if stage.op == "train"
        else stage
        for stage in graph.stages
    )
    return compile_graph(replace(graph, stages=stages), laptop(cores=64))


@cache
def digits() -> Plan:
    return compile_graph(vlm(batch=32), laptop(cores=64))


def logged(plan: Plan) -> list[Logged]:
    """The messages of a simulated run as a real one writes them: with tokens, not their number."""
    log: list[Logged] = []
    lengths: dict[tuple[str, int], int] = {}

    def watch(state: State, event: Event, actions: list[Action]) -> None:
        worker = getattr(event, "worker", "")
        if worker:
            log.append((0.0, False, worker, real(event)))  # type: ignore[arg-type]
        for action in actions:
            if isinstance(action, Send):
                log.append((0.0, True, action.worker, real(action.message)))

    def real(message: Message) -> Message:
        match message:
            case Issued():
                for id, _, response in message.calls:
                    lengths[(message.worker, id)] = response
                return message
            case Generate():
                calls = tuple(
                    (id, b"", bytes(8 * prompt), 1, 1.0, (), ()) for id, prompt, _ in message.calls
                )
                return replace(message, calls=calls)
            case Generated():
                done = tuple(
                    (id, bytes(8 * lengths[(message.origin, id)]), b"", b"")
                    for (id,) in message.completions
                )
                return replace(message, completions=done)
        return message

    simulate(plan, steps=6, times=TIMES, watch=watch, checkpoint_every=2)
    return log


def test_engines_times_come_back_from_the_messages() -> None:
    found = measure(agents(), logged(agents())).times.engines["solver.engine"]
    made = TIMES.engines["solver.engine"]
    assert found.iteration(20) == pytest.approx(made.iteration(20), rel=0.15)
    assert found.prefill(200) == pytest.approx(made.prefill(200), rel=0.3)


def test_trainers_and_encoders_times_come_back_from_the_messages() -> None:
    games, pictures = measure(agents(), logged(agents())), measure(digits(), logged(digits()))
    for found, name, weight in (
        (games, "train-solver", 300),
        (games, "train-verifier", 300),
        (pictures, "encode", 4),
        (pictures, "train-lm", 512),
    ):
        task, made = found.times.tasks[name], TIMES.tasks[name]
        assert task.forward(weight, 0) == pytest.approx(made.forward(weight, 0), rel=0.1), name
        assert task.evaluate == pytest.approx(made.evaluate, rel=0.05) or name in games.times.tasks
    backward = pictures.times.tasks["encode"]
    assert backward.backward(4) == pytest.approx(TIMES.tasks["encode"].backward(4), rel=0.05)
    assert pictures.times.updates == pytest.approx({"vit": 3e-3, "lm": 4e-3})
    assert games.times.saves == pytest.approx({"solver": 0.01, "verifier": 0.01})


def test_a_host_tasks_total_comes_back_from_the_messages() -> None:
    found = measure(agents(), logged(agents())).times.hosts["games"]
    made = TIMES.hosts["games"]
    calls = 6 * 2.5
    whole = made.item_s + 6 * made.sample_s + calls * made.call_s
    again = found.item_s + 6 * found.sample_s + calls * found.call_s
    assert again == pytest.approx(whole, rel=0.1)


def test_lengths_and_calls_come_back_from_the_messages() -> None:
    lengths = measure(agents(), logged(agents())).lengths
    assert np.mean(lengths.responses["solver"]) == pytest.approx(4, rel=0.15)
    assert np.mean(lengths.prompts["solver"]) == pytest.approx(8, rel=0.15)
    assert np.mean(lengths.calls["solver"]) == pytest.approx(1.5, rel=0.1)
    assert np.mean(lengths.calls["verifier"]) == pytest.approx(1.0)


def test_a_run_predicted_from_its_own_messages_takes_as_long_as_it_took() -> None:
    for plan in (agents(), digits()):
        real = simulate(plan, steps=6, times=TIMES)
        found = measure(plan, logged(plan))
        times = replace(found.times, event_s=TIMES.event_s)
        again = simulate(plan, steps=6, times=times, lengths=found.lengths, seed=5)
        assert again.step_s["p50"] == pytest.approx(real.step_s["p50"], rel=0.08)


def test_busy_seconds_on_crowded_cores_are_scaled_to_cpu_time() -> None:
    log = logged(agents())
    busy = measure(agents(), log).times
    spent = {
        worker: sum(getattr(m, "busy_s", 0.0) for _, _, w, m in log if w == worker) / 2
        for worker in ("solver.engine-0", "solver.gang-0", "verifier.gang-0", "host-0")
    }
    half = measure(agents(), log, CpuTime(spent, orchestrator=0.5)).times
    assert half.engines["solver.engine"].iteration_s == pytest.approx(
        busy.engines["solver.engine"].iteration_s / 2
    )
    assert half.updates["solver"] == pytest.approx(busy.updates["solver"] / 2)
    assert half.event_s == pytest.approx(0.5 / len(log))


def test_no_part_of_a_fit_is_negative_and_the_total_is_met() -> None:
    draw = random.Random(0)
    rows = [(1.0, float(draw.randint(1, 50)), float(draw.randint(0, 3))) for _ in range(60)]
    seconds = [(0.01 + 0.002 * row[1]) * draw.uniform(0.7, 1.3) for row in rows]
    parts = fit_parts(rows, seconds)
    assert min(parts) >= 0.0
    total = sum(sum(a * b for a, b in zip(parts, row, strict=True)) for row in rows)
    assert total == pytest.approx(sum(seconds))
    assert parts[1] == pytest.approx(0.002, rel=0.2)
    assert fit_parts([(1.0, 2.0)], [0.0]) == (0.0, 0.0)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no run directory"):
        read_run(tmp_path)
