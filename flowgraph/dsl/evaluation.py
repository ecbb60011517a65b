"""Evaluate stages: figures of the present weights at step boundaries."""

from collections.abc import Mapping
from typing import Any

from flowgraph.dsl.draft import Draft, as_data
from flowgraph.dsl.functions import AnyFunction, refer
from flowgraph.dsl.location import refuse
from flowgraph.dsl.signature import check_parameters
from flowgraph.dsl.transforms import read_source
from flowgraph.dsl.units import whole
from flowgraph.ir.graph import FunctionRef, Stage
from flowgraph.ir.types import RecordType


def add_evaluation(
    draft: Draft,
    name: str,
    *,
    of: str,
    every: int,
    samples: int,
    at_start: bool,
    metric: FunctionRef | None = None,
    source: FunctionRef | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Record an evaluate stage."""
    name = draft.claim("stage", name, name)
    role = f"evaluate '{name}'"
    draft.add(
        Stage(
            name=name,
            op="evaluate",
            attributes={
                "of": of,
                "every": whole(every, f"{role}: every, in steps", least=0),
                "samples": whole(samples, f"{role}: samples", least=1),
                "at_start": bool(at_start),
                "overrides": dict(overrides or {}),
                "source": as_data(source) if source else {},
            },
            function=metric,
        )
    )


def evaluated_train(draft: Draft, name: str, of: str | None) -> str:
    """The train stage to evaluate: the named one, or the only one."""
    trains = [stage.name for stage in draft.stages.values() if stage.op == "train"]
    if of is not None:
        return of
    if len(trains) == 1:
        return trains[0]
    raise refuse(
        f"evaluate '{name}': "
        + ("no train stage comes before it" if not trains else "there are several train stages"),
        hint="declare it after .train(...)" if not trains else "of=, what .train(...) returned",
    )


def metric_of(function: AnyFunction, name: str) -> FunctionRef:
    """The metric by name, checked to take (outputs, fields)."""
    role = f"evaluate '{name}': metric"
    reference = refer(function, {}, role=role)
    check_parameters(function, {}, role=role, given=("the outputs", "the fields"))
    return reference


def held_out(
    draft: Draft, name: str, train: str, function: AnyFunction, params: Mapping[str, Any]
) -> FunctionRef:
    """Another source for the evaluated stage, of the same record type as the one it stands for."""
    role = f"evaluate '{name}': source"
    stages = draft.upstream(draft.stages[train].inputs[0])
    sources = [stage for stage in stages if stage.op == "source"]
    if len(sources) > 1:
        raise refuse(f"{role}: '{train}' has several sources, so none can be replaced")
    reference, made = read_source(function, params, type=None, role=role)
    expected = draft.streams[sources[0].outputs[0]].type
    _check_same(made, expected, sources[0].name, role)
    return reference


def _check_same(made: RecordType, expected: RecordType, source: str, role: str) -> None:
    if made == expected:
        return
    for field in expected.fields:
        if made.field(field.name) != field:
            found = made.field(field.name) or "no such field"
            raise refuse(f"{role}: expects '{field}' as in source '{source}', got '{found}'")
    extra = next(field for field in made.fields if expected.field(field.name) is None)
    raise refuse(f"{role}: source '{source}' has no field '{extra}'")
