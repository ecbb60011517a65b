"""Stages of the user's code on records: source, map, filter, sink."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowgraph.dsl.annotations import MISSING, element_of, first_annotation, return_annotation
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import AnyFunction, origin, refer
from flowgraph.dsl.location import refuse
from flowgraph.dsl.passing import kept_fields, read_fields
from flowgraph.dsl.records import check_input, output_type, source_type
from flowgraph.dsl.signature import check_parameters
from flowgraph.dsl.units import expected_lengths, one_of, real, whole
from flowgraph.ir.graph import FunctionRef, Stage, Stream
from flowgraph.ir.types import RecordType

_OWN = ("name", "batched", "type", "devices", "expect", "keeps", "reads")
_OF_SOURCES = (
    *("at_end", "shuffle", "type", "expect", "devices"),
    *("of", "every", "samples", "at_start"),  # of evaluations, which have sources too
)
_AT_END = ("loop", "drop", "short")


def add_source(
    draft: Draft,
    name: str,
    function: AnyFunction,
    params: Mapping[str, Any],
    *,
    at_end: str,
    shuffle: bool,
    type: Any,
    expect: Mapping[str, Any],
    devices: int,
) -> Stream:
    """Record a source; its stream has the stage's name."""
    name = draft.claim("stage", name, name)
    role = f"source '{name}'"
    reference, record = read_source(function, params, type=type, role=role)
    stage = Stage(
        name=name,
        op="source",
        outputs=(name,),
        attributes={
            "at_end": one_of(at_end, f"{role}: at_end", _AT_END),
            "shuffle": bool(shuffle),
            **expected_lengths(expect, record, role),
        },
        function=reference,
        devices=whole(devices, f"{role}: devices", least=0),
    )
    draft.add(stage, record)
    return draft.streams[name]


def read_source(
    function: AnyFunction, params: Mapping[str, Any], *, type: Any, role: str
) -> tuple[FunctionRef, RecordType]:
    """A source's function by name, and the type of its records."""
    reference = refer(function, params, role=role)
    check_parameters(function, params, role=role, reserved=_OF_SOURCES)
    if isinstance(type, RecordType):
        return reference, type
    element = type
    if element is None:
        element = element_of(return_annotation(function, role), function, role)
    hint = f"def {function.__name__}(...) -> Sequence[Task], or type=Task at the stage"
    return reference, source_type(element, role=role, hint=hint)


def add_map(
    draft: Draft,
    stream: str,
    function: AnyFunction,
    params: Mapping[str, Any],
    *,
    name: str | None,
    batched: bool,
    type: Any,
    keeps: Sequence[str],
    devices: int,
) -> Stream:
    """Record a map, whose records replace all fields but the key and what it keeps."""
    stage = _record_stage(draft, "map", stream, function, params, name, batched, devices)
    role = f"map '{stage.name}'"
    read = draft.streams[stream].type
    made = type if isinstance(type, RecordType) else None
    if made is None:
        element = type if type is not None else return_annotation(function, role)
        if batched and type is None:
            element = MISSING
        keys = tuple(field for field in read.fields if field.name in read.key)
        hint = "type=Answer at the stage" if batched else "-> Answer at the function"
        made = output_type(element, read.key, keys, role=role, hint=f"{hint}, Answer a dataclass")
    if keeps:
        made = kept_fields(keeps, made, stream, read, role=role)
        kept = tuple(name for name in made.names if name in keeps and name not in made.key)
        stage = replace(stage, attributes={**stage.attributes, "keeps": kept})
    draft.add(stage, made)
    return draft.streams[stage.name]


def add_filter(
    draft: Draft,
    stream: str,
    function: AnyFunction,
    params: Mapping[str, Any],
    *,
    name: str | None,
    batched: bool,
    expect: float,
    reads: Sequence[str],
    devices: int,
) -> Stream:
    """Record a filter; what passes keeps its type."""
    stage = _record_stage(draft, "filter", stream, function, params, name, batched, devices)
    role = f"filter '{stage.name}'"
    _check_early(draft, stream, role)
    type = draft.streams[stream].type
    share = real(expect, f"{role}: expect, a share", above=0, most=1)
    annotation = MISSING if batched else first_annotation(function, role)
    handed = read_fields(reads, annotation, stream, type, role=role)
    more = {"expect": share, **({"reads": handed} if handed else {})}
    draft.add(replace(stage, attributes={**stage.attributes, **more}), type)
    return draft.streams[stage.name]


def _check_early(draft: Draft, stream: str, role: str) -> None:
    """Which samples belong to a step is decided before any version of a model is read."""
    if draft.streams[stream].type.key != ("sample",):
        return
    for stage in draft.upstream(stream):
        if stage.op in ("apply", "episodes"):
            raise refuse(
                f"{role}: which samples belong to a step is decided before a model runs, "
                f"but '{stage.name}' comes before it ({stage.at})",
                hint=f"filter what the source makes, before '{stage.name}'",
            )


def add_sink(
    draft: Draft,
    stream: str,
    function: AnyFunction,
    params: Mapping[str, Any],
    *,
    name: str | None,
    batched: bool,
    devices: int,
) -> None:
    """Record a sink."""
    stage = _record_stage(draft, "sink", stream, function, params, name, batched, devices)
    draft.add(replace(stage, outputs=()))


def _record_stage(
    draft: Draft,
    op: str,
    stream: str,
    function: AnyFunction,
    params: Mapping[str, Any],
    name: str | None,
    batched: bool,
    devices: int,
) -> Stage:
    """The stage of one function over the stream's records, checked but not yet recorded."""
    automatic = getattr(function, "__name__", op).strip("_") or op
    role = f"{op} '{name or automatic}'"
    reference = refer(function, params, role=role)
    if inspect.iscoroutinefunction(function):
        raise refuse(
            f"{role}: '{function.__name__}' is async, which only episodes are{origin(function)}",
            hint=f"def {function.__name__}(...)",
        )
    given = "a batch of columns" if batched else "a record"
    check_parameters(function, params, role=role, given=(given,), reserved=_OWN)
    if not batched:
        check_input(first_annotation(function, role), stream, draft.streams[stream].type, role=role)
    claimed = draft.claim("stage", name, automatic)
    return Stage(
        name=claimed,
        op=op,
        inputs=(stream,),
        outputs=(claimed,),
        attributes={"batched": bool(batched)},
        function=reference,
        devices=whole(devices, f"{role}: devices", least=0),
    )
