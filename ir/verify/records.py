"""Rules about record types: which fields a stage reads, and what it makes of them."""

from flowgraph.ir.graph import Stage, Stream
from flowgraph.ir.index import Index, agent_of, attribute
from flowgraph.ir.types import AGENT_ROW, DTYPES, Field, Ragged, RecordType
from flowgraph.ir.verify.faults import Faults, StageRule, fault, nearest

FLOATS = ("float16", "bfloat16", "float32", "float64")


def read_type(at: Index, stage: Stage) -> RecordType:
    """The type of the stage's first input."""
    return at.streams[stage.inputs[0]].type


def missing_field(stage: Stage, record: RecordType, name: str, what: str) -> Faults:
    """A fault unless the record has the field."""
    if record.field(name) is None:
        yield fault(
            stage,
            f"{what} {name!r} among the fields of {stage.inputs[0]!r}",
            "no such field",
            nearest(name, record.names),
            term=name,
        )


def type_is_legal(stream: Stream) -> Faults:
    """Fields are named once, ragged dims lead, sizes are positive, and the key is int64."""
    seen: set[str] = set()
    for field in stream.type.fields:
        if field.name in seen:
            yield fault(stream, f"field {field.name!r} once", "it twice", term=field.name)
        seen.add(field.name)
        if field.dtype not in DTYPES:
            hint = nearest(field.dtype, DTYPES)
            yield fault(stream, f"a dtype of field {field.name!r}", repr(field.dtype), hint)
        if _leading(field) != len(field.ragged):
            yield fault(stream, f"ragged dims of {field.name!r} before all others", f"'{field}'")
        if any(isinstance(dim, int) and dim < 1 for dim in field.dims):
            yield fault(stream, f"sizes of at least 1 in field {field.name!r}", f"'{field}'")
    for key in stream.type.key:
        found = stream.type.field(key)
        if found is None or found.dtype != "int64" or found.dims:
            got = f"'{found}'" if found else "no such field"
            yield fault(stream, f"key {key!r} to be an int64 field", got, term=key)


def _leading(field: Field) -> int:
    """How many ragged dims stand first."""
    count = 0
    for dim in field.dims:
        if not isinstance(dim, Ragged):
            break
        count += 1
    return count


def type_is_kept(at: Index, stage: Stage) -> Faults:
    """The output has the type of the input."""
    made, read = at.streams[stage.outputs[0]].type, read_type(at, stage)
    if made != read:
        yield fault(
            stage,
            f"its output {stage.outputs[0]!r} to have its input's type {read}",
            str(made),
            term="outputs",
        )


def key_is_kept(at: Index, stage: Stage) -> Faults:
    """A record stays the record of the same key."""
    made, read = at.streams[stage.outputs[0]].type, read_type(at, stage)
    if made.key != read.key:
        yield fault(stage, f"its output to keep the key {_names(read.key)}", _names(made.key))


def credit_is_possible(at: Index, stage: Stage) -> Faults:
    """A map that gives credit reads rewards by group and adds an advantage."""
    if not attribute(stage, "credit"):
        return
    record = read_type(at, stage)
    yield from missing_field(stage, record, "reward", "field")
    if attribute(stage, "group")[:1] != ("sample",):
        # A stage worker holds a few samples of a step, never all of them.
        got = _names(attribute(stage, "group"))
        yield fault(stage, "'sample' as the first key of credit's groups", got, term="group")
    for name in attribute(stage, "group"):
        yield from missing_field(stage, record, name, "group key")
    if attribute(stage, "size") < 0:
        yield fault(stage, "size >= 0", str(attribute(stage, "size")), term="size")
    made = at.streams[stage.outputs[0]].type.field("advantage")
    if made is None or made.dtype != "float32" or made.dims:
        got = f"'{made}'" if made else "no such field"
        yield fault(stage, "its output to have 'advantage: float32'", got)


def group_is_by_key(at: Index, stage: Stage) -> Faults:
    """Groups end with their sample; their keys are among the records' keys."""
    record, keys = read_type(at, stage), attribute(stage, "by")
    for name in keys:
        yield from missing_field(stage, record, name, "group key")
        if record.field(name) and name not in record.key:
            hint = nearest(name, record.key)
            yield fault(stage, "keys of its records to group by", repr(name), hint, term=name)
    if keys[:1] != ("sample",):
        yield fault(stage, "'sample' as the first key", _names(keys), term="by")
    if attribute(stage, "size") < 0:
        yield fault(stage, "size >= 0", str(attribute(stage, "size")), term="size")


def filter_decides_early(at: Index, stage: Stage) -> Faults:
    """Membership is decided before a version is read: filter samples before any model runs."""
    if read_type(at, stage).key != ("sample",):
        return
    models = [s.name for s in at.ancestors(stage) if s.op in ("apply", "episodes")]
    if models:
        yield fault(
            stage,
            "to filter samples before a model runs on them, since filters decide which samples "
            "belong to a step",
            f"{models[0]!r} before it",
            f"filter what the source makes, before {models[-1]!r}",
        )


def unnest_has_its_dim(at: Index, stage: Stage) -> Faults:
    """The dim is the outermost ragged one of some field; items are keyed by sample and item."""
    record, made = read_type(at, stage), at.streams[stage.outputs[0]].type
    outer = list(dict.fromkeys(field.ragged[0] for field in record.fields if field.ragged))
    dim = attribute(stage, "dim")
    if dim not in outer:
        yield fault(
            stage,
            f"{dim!r} to be the outermost ragged dim of a field of {stage.inputs[0]!r}",
            f"the type {record}",
            nearest(dim, outer),
            term=dim,
        )
    if record.key != ("sample",):
        yield fault(stage, "samples, keyed by 'sample'", f"records by {_names(record.key)}")
    if made.key != ("sample", "item"):
        yield fault(stage, "its output to be keyed by 'sample', 'item'", _names(made.key))


def join_has_its_keys(at: Index, stage: Stage) -> Faults:
    """What is joined has the key of the first input, or that key and `item`."""
    first = read_type(at, stage)
    for name in stage.inputs[1:]:
        other = at.streams[name].type
        if other.key not in (first.key, (*first.key, "item")):
            yield fault(
                stage,
                f"stream {name!r} to be keyed by {_names(first.key)} or "
                f"{_names((*first.key, 'item'))}, as {stage.inputs[0]!r} is",
                _names(other.key),
                term=name,
            )
        for field in other.fields:
            if field.name not in other.key and first.field(field.name):
                yield fault(
                    stage,
                    "a field in one of its inputs only",
                    f"{field.name!r} in {stage.inputs[0]!r} and {name!r}",
                    "name the output of one of them differently",
                    term=name,
                )


def join_makes_all_fields(at: Index, stage: Stage) -> Faults:
    """The output has the first input's fields and the others', items' with a dim in front."""
    first, made = read_type(at, stage), at.streams[stage.outputs[0]].type
    if made.key != first.key:
        yield fault(stage, f"its output to be keyed by {_names(first.key)}", _names(made.key))
    for name in stage.inputs:
        record = at.streams[name].type
        nested = record.key != first.key
        for field in record.fields:
            if field.name in record.key and nested:
                continue
            found = made.field(field.name)
            if found is None or found.dtype != field.dtype or found.dims[nested:] != field.dims:
                got = f"'{found}'" if found else "no such field"
                yield fault(stage, f"its output to have '{field}' of {name!r}", got)


def apply_has_its_fields(at: Index, stage: Stage) -> Faults:
    """The module's inputs are fields of the stream, its output a float field of the result."""
    if len(stage.modules) != 1:
        yield fault(stage, "one module", str(len(stage.modules)), term="modules")
    record, made = read_type(at, stage), at.streams[stage.outputs[0]].type
    for name in attribute(stage, "inputs"):
        yield from missing_field(stage, record, name, "module input")
    output = made.field(attribute(stage, "output"))
    if output is None or output.dtype not in FLOATS:
        got = f"'{output}'" if output else "no such field"
        yield fault(
            stage,
            f"its output stream to have a float field {attribute(stage, 'output')!r}",
            got,
            nearest(attribute(stage, "output"), made.names),
        )
    if made.key != record.key:
        yield fault(stage, f"its output to keep the key {_names(record.key)}", _names(made.key))


def episodes_make_rows(at: Index, stage: Stage) -> Faults:
    """An episodes stage plays samples and makes rows of its agents, one stream an agent."""
    if not stage.agents:
        yield fault(stage, "agents to play", "none", term="agents")
    record = read_type(at, stage)
    if record.key != ("sample",):
        yield fault(stage, "samples, keyed by 'sample'", f"records by {_names(record.key)}")
    for name in ("trajectories", "in_flight"):
        if attribute(stage, name) < 1:
            yield fault(stage, f"{name} >= 1", str(attribute(stage, name)), term=name)
    if not attribute(stage, "timeout_s") > 0:
        yield fault(stage, "timeout_s > 0", str(attribute(stage, "timeout_s")), term="timeout_s")
    for output in stage.outputs:
        if not agent_of(stage, output):
            expected = ", ".join(f"{stage.name}.{agent}" for agent in stage.agents)
            yield fault(stage, f"outputs named {expected}", repr(output), term=output)
        if at.streams[output].type != AGENT_ROW:
            got = str(at.streams[output].type)
            yield fault(stage, f"output {output!r} to have rows {AGENT_ROW}", got, term=output)


def _names(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})"


RECORD_RULES: dict[str, tuple[StageRule, ...]] = {
    "map": (key_is_kept, credit_is_possible),
    "filter": (type_is_kept, filter_decides_early),
    "group": (group_is_by_key, type_is_kept),
    "join": (join_has_its_keys, join_makes_all_fields),
    "unnest": (unnest_has_its_dim,),
    "apply": (apply_has_its_fields,),
    "episodes": (episodes_make_rows,),
    "pack": (type_is_kept,),
}
