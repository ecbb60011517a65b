"""Sources, maps, filters and sinks: typed records in, checked records out, ids kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowgraph.ir.graph import Stage
from flowgraph.ir.location import Location
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.randomness import order
from flowgraph.runtime.stages.sources import order_seed
from tests.runtime.stages.rig import after, drive, host, host_of, item, plan, ref, run, source


def numbers(result: Any, stream: str = "tasks") -> list[list[int]]:
    return [batch["number"].values.tolist() for batch in result.outputs[stream]]


def failed(task: Any, *units: tuple[int, ...]) -> StageFailed:
    with pytest.raises(StageFailed) as caught:
        run(task, *units)
    return caught.value


def test_a_source_gives_each_unit_its_samples_by_position() -> None:
    result = run(host(plan(source(size=5))), (0, 1), (4, 5, 11))
    assert numbers(result) == [[0, 1], [4, 0, 1]]
    assert [batch["sample"].values.tolist() for batch in result.outputs["tasks"]] == [
        [0, 1],
        [4, 5, 11],
    ]
    assert result.outputs["tasks"][0].row(1) == {
        "sample": 1,
        "number": 1,
        "text": "task 1",
        "digits": pytest.approx(np.array([0])),
    }


def test_a_shuffled_source_reads_each_epoch_in_its_own_order() -> None:
    task = host(plan(source(size=5, shuffle=True, seed=3)), seed=9)
    found = numbers(run(task, tuple(range(10))))[0]
    seed = order_seed(9, 3)
    assert found == [*order(seed, 0, 5).tolist(), *order(seed, 1, 5).tolist()]
    assert found[:5] != found[5:]
    assert (
        numbers(run(host(plan(source(size=5, shuffle=True, seed=3)), seed=8), (0, 1, 2, 3, 4)))[0]
        != found[:5]
    )


def test_reading_beyond_a_source_that_does_not_loop_is_an_error() -> None:
    error = failed(host(plan(source(size=5, at_end="short"))), (5,))
    assert "stage 'tasks', sample 5: sample 5 is beyond the source's 5 samples" in str(error)


@pytest.mark.parametrize("units", [[(0, 1), (2,)], [(150,), (70, 71), (3,), (140,)], [(205,)]])
def test_an_iterable_source_is_read_by_position_in_any_order(units: list[tuple[int, ...]]) -> None:
    task = host(plan(source(size=200, function="counter")))
    for _ in range(2):
        assert numbers(run(task, *units)) == [[s % 200 for s in unit] for unit in units]


def test_the_size_of_a_source_is_known_or_measured_or_not_needed() -> None:
    assert host(plan(source(size=5))).source_size(0) == 5
    assert host(plan(source(size=70, function="counter"))).source_size(0) == -1
    short = host(plan(source(size=70, function="counter", at_end="short")))
    assert short.source_size(0) == 70
    assert numbers(run(short, (3, 69))) == [[3, 69]]
    assert "beyond the source's 70 samples" in str(failed(short, (70,)))


def test_a_source_that_is_neither_is_refused() -> None:
    error = failed(host(plan(source(function="generator"))), (0,))
    assert "returned generator, which is neither a sequence nor an iterable" in str(error)
    assert "try: return a list" in str(error)


def test_an_empty_source_is_refused() -> None:
    assert "stage 'tasks': the source is empty" in str(failed(host(plan(source(size=0))), (0,)))


def test_an_evaluation_reads_its_own_source() -> None:
    evaluate = Stage(
        name="held-out",
        op="evaluate",
        attributes={
            "of": "train",
            "source": {
                "module": ref("tasks").module,
                "qualname": "tasks",
                "path": "",
                "digest": "",
                "params": {"size": 3, "base": 100},
            },
        },
    )
    task = host(plan(source(size=5), evaluate))
    assert (task.source_size(0), task.source_size(1)) == (5, 3)
    assert numbers(run(task, (0, 4), variant=1)) == [[100, 101]]
    assert numbers(run(task, (0, 4))) == [[0, 4]]


@pytest.mark.parametrize("function", ["doubled", "doubled_pair", "doubled_columns"])
def test_a_map_sees_typed_records_or_columns_and_keeps_the_key(function: str) -> None:
    tasks = source(size=8)
    stage = after(tasks, "map", function, batched="columns" in function, params={"times": 3})
    result = run(host(plan(tasks, stage)), (3, 5), (), (6,))
    rows = [batch.to_rows() for batch in result.outputs[function]]
    assert [[row["sample"] for row in unit] for unit in rows] == [[3, 5], [], [6]]
    assert [[row["number"] for row in unit] for unit in rows] == [[9, 15], [], [18]]
    assert [row["digits"].tolist() for row in rows[0]] == [[0, 1, 2, 0, 1, 2], [0, 0]]


def test_a_map_that_returns_a_misfit_names_stage_sample_and_field() -> None:
    tasks = source()
    error = failed(host(plan(tasks, after(tasks, "map", "wrong_type"))), (1, 2, 3))
    assert str(error).startswith(
        "stage 'wrong_type', sample 2: returned a record whose field 'number' expects int64, got "
    )


def test_an_exception_of_the_users_names_stage_sample_and_line() -> None:
    tasks = source()
    error = failed(host(plan(tasks, after(tasks, "map", "failing"))), (1, 2))
    assert (error.stage, error.sample) == ("failing", 2)
    assert error.cause.startswith("ZeroDivisionError: ")
    assert error.at is not None
    assert error.at.file == "tests/runtime/stages/plays.py"
    lines = Path(error.at.file).read_text().splitlines()
    assert "a // b" in lines[error.at.line - 1]
    assert "in failing" in error.trace
    assert "operators.py" not in error.trace


def test_the_line_named_is_the_users_and_not_a_librarys() -> None:
    tasks = source()
    error = failed(host(plan(tasks, after(tasks, "map", "unreadable"))), (1,))
    assert error.cause.startswith("JSONDecodeError: ")
    assert error.at is not None
    assert error.at.file == "tests/runtime/stages/plays.py"
    assert "raw_decode" in error.trace


def test_a_source_that_raises_names_the_sample() -> None:
    error = failed(host(plan(source(function="broken_tasks"))), (2, 3))
    assert (error.stage, error.sample, error.cause) == ("tasks", 3, "OSError: disk on fire")


@pytest.mark.parametrize(("function", "batched"), [("even", False), ("even_columns", True)])
def test_a_filter_before_membership_reports_the_ids_it_kept_and_why_not_others(
    function: str, batched: bool
) -> None:
    tasks = source()
    first = after(tasks, "filter", function, batched=batched)
    second = after(first, "filter", "above", params={"least": 3})
    result = run(host(plan(tasks, first, second), gated=False), (0, 1, 2, 3), (4, 5, 6))
    assert result.kept == (4, 6)
    by_filter = {sample: reason for sample, reason in result.dropped}
    assert set(by_filter) == {0, 1, 2, 3, 5}
    assert by_filter[2] == "filter 'above'"
    assert numbers(result, "above") == [[], [4, 6]]


def test_a_sample_must_pass_the_filters_of_all_branches() -> None:
    tasks = source()
    high = after(tasks, "filter", "above", params={"least": 3})
    result = run(host(plan(tasks, high, after(tasks, "filter", "even")), gated=False), (2, 3, 4))
    assert result.kept == (4,)


def test_all_ids_are_kept_without_a_filter_and_none_reported_after_membership() -> None:
    assert run(host(plan(source()), gated=False), (0, 1), (2,)).kept == (0, 1, 2)
    assert run(host(plan(source())), (0, 1)).kept == ()


def test_what_a_filter_takes_away_after_membership_is_recorded_as_dropped() -> None:
    tasks = source()
    result = run(host(plan(tasks, after(tasks, "filter", "even"))), (1, 2, 3))
    assert result.dropped == ((1, "filter 'even'"), (3, "filter 'even'"))


def test_a_sink_gets_every_training_record_once_and_none_of_an_evaluation(tmp_path: Path) -> None:
    tasks = source()
    sink = after(tasks, "sink", "collect", params={"into": str(tmp_path / "seen")})
    evaluate = Stage(name="e", op="evaluate", attributes={"of": "train", "source": {}})
    task = host(plan(tasks, sink, evaluate))
    run(task, (0, 1), (2,))
    run(task, (5,), variant=1)
    assert (tmp_path / "seen").read_text() == "0\n1\n2\n"


def test_input_rows_of_other_samples_are_left_out() -> None:
    tasks = source()
    both = plan(tasks, after(tasks, "map", "doubled"))
    batch = run(host_of(both, "tasks"), (0, 1, 2, 3)).outputs["tasks"][0]
    (result,) = drive(host_of(both, "doubled"), item((1,), (2, 3), tasks=(batch, batch)))
    assert numbers(result, "doubled") == [[2], [4, 6]]


def test_the_declared_line_stands_in_when_no_line_of_the_users_raised() -> None:
    tasks = replace(source(size=0), at=Location("graph.py", 12))
    assert failed(host(plan(tasks)), (0,)).at == Location("graph.py", 12)
