"""Bytes that groups send one another in a step, as far as the graph tells before it is wired."""

import math
from collections.abc import Mapping

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, index
from flowgraph.ir.types import Field, Ragged, RecordType, Symbol
from flowgraph.passes import assumptions
from flowgraph.passes.demand import batch_of
from flowgraph.passes.state import State
from flowgraph.runtime.policy.roofline import shape_of

ITEM_BYTES = {"bool": 1, "uint8": 1, "int32": 4, "float16": 2, "bfloat16": 2, "float32": 4}


def record_bytes(record: RecordType, lengths: Mapping[str, float]) -> int:
    """Expected bytes of one record; lengths: expected entries of its ragged dims, by their name."""
    return sum(_field_bytes(field, lengths) for field in record.fields)


def _field_bytes(field: Field, lengths: Mapping[str, float]) -> int:
    size = float(ITEM_BYTES.get(field.dtype, 8))
    if field.dtype == "str":
        size = assumptions.TEXT_BYTES
    for dim in field.dims:
        if isinstance(dim, Ragged):
            size *= lengths.get(dim.name, assumptions.RAGGED_LENGTH)
        else:
            size *= assumptions.RAGGED_LENGTH if isinstance(dim, Symbol) else dim
    return math.ceil(size)


def traffic(state: State) -> Mapping[tuple[str, str], int]:
    """Bytes a step between two groups, by their names in order. Joins and packs pass data on."""
    at = index(state.graph)
    found: dict[tuple[str, str], int] = {}

    def add(one: str, other: str, size: float) -> None:
        if one != other:
            key = (min(one, other), max(one, other))
            found[key] = found.get(key, 0) + math.ceil(size)

    for stream in state.graph.streams:
        if stream.kind == "weights":
            module = stream.name.removesuffix(".weights")
            shape = shape_of(state.graph.module(module))
            for group in state.groups:
                if group.kind == "engine" and group.module == module:
                    add(f"{module}.gang", group.name, shape.parameters * shape.bytes)
            continue
        size = batch_of(state.graph) * float(state.rates[stream.name])
        size *= record_bytes(stream.type, state.lengths.get(stream.name, {}))
        if stream.kind == "gradient":
            maker = at.producer(stream.name.removesuffix(".gradient"))
            if maker is not None:
                add(_group(at.stages[stream.producer]), _group(maker), size)
            continue
        maker = at.producer(stream.name)
        for reader in _readers(at, stream.name) if maker is not None else ():
            add(_group(maker or reader), _group(reader), size)
    return found


def _group(stage: Stage) -> str:
    return f"{stage.modules[0]}.gang" if stage.op in ("apply", "train") else "host"


def _readers(at: Index, stream: str) -> tuple[Stage, ...]:
    """Who reads the stream, behind joins and packs, which trainers do."""
    found: list[Stage] = []
    for stage in at.consumers.get(stream, ()):
        if stage.op in ("join", "pack"):
            found += [r for output in stage.outputs for r in _readers(at, output)]
        elif stage.op != "evaluate":
            found.append(stage)
    return tuple(found)
