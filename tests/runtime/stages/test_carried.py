"""Fields that pass a function by: the key, what a map keeps, what a filter does not read."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowgraph.ir.graph import Stage
from flowgraph.ir.types import SAMPLE, RecordType
from flowgraph.runtime.failures import StageFailed
from tests.runtime.stages.rig import TASKS, after, host, plan, run, source

PLAYS = "tests.runtime.stages.test_carried"


def stretched(record: Any) -> dict[str, Any]:
    """One mark fewer than digits where there are three."""
    return {"marks": list(range(min(2, len(record.digits))))}


def seen(record: Any) -> bool:
    return set(vars(record)) == {"sample", "number"}


def seen_columns(batch: dict[str, Any]) -> Any:
    return np.full(len(batch["sample"]), set(batch) == {"sample", "number"})


def test_what_a_map_keeps_is_handed_on_whatever_its_function_returns() -> None:
    tasks = source()
    for function in ("doubled", "doubled_columns"):
        stage = after(tasks, "map", function, batched="columns" in function, keeps=("number",))
        (batch,) = run(host(plan(tasks, stage)), (3, 5)).outputs[function]
        rows = batch.to_rows()
        assert [row["number"] for row in rows] == [3, 5]
        assert rows[0]["digits"].tolist() == [0, 1, 2] * 2


def test_a_field_made_shorter_than_the_kept_one_beside_it_is_refused() -> None:
    tasks = source()
    digits = TASKS.fields[-1]
    type = RecordType(fields=(SAMPLE, digits, replace(digits, name="marks")))
    stage = mine(after(tasks, "map", "stretched", keeps=("digits",)))
    fine = run(host(plan(tasks, stage, types={"stretched": type})), (0, 1, 2))
    assert fine.outputs["stretched"][0].rows == 3
    with pytest.raises(StageFailed) as caught:
        run(host(plan(tasks, stage, types={"stretched": type})), (2, 3))
    assert caught.value.sample == 3
    assert "field 'marks' has 2 digits where 'digits', kept, has 3" in str(caught.value)


@pytest.mark.parametrize("function", ["seen", "seen_columns"])
def test_a_filter_is_handed_the_key_and_what_it_reads(function: str) -> None:
    tasks = source()
    keep = after(tasks, "filter", function, batched="columns" in function, reads=("number",))
    (batch,) = run(host(plan(tasks, mine(keep))), (0, 1)).outputs[function]
    assert [row["number"] for row in batch.to_rows()] == [0, 1]
    assert batch.columns.keys() == set(TASKS.names)


def mine(stage: Stage) -> Stage:
    """The stage with the function of that name in this file."""
    assert stage.function is not None
    return replace(stage, function=replace(stage.function, module=PLAYS))
