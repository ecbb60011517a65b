"""Rules about record types: which fields a stage reads, and what it makes of them."""

import difflib
import math
from collections.abc import Mapping

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, attribute
from flowgraph.ir.types import RecordType
from flowgraph.ir.verify.faults import Faults, StageRule, fault, nearest

FLOATS = ("float16", "bfloat16", "float32", "float64")


def read_type(at: Index, stage: Stage) -> RecordType:
    """The type of the stage's first input."""
    return at.streams[stage.inputs[0]].type


def named(names: tuple[str, ...]) -> str:
    """Names as a message shows a key."""
    return f"({', '.join(names)})"


def missing_field(stage: Stage, record: RecordType, name: str, what: str) -> Faults:
    """A fault unless the record has the field."""
    if record.field(name) is None:
        yield fault(
            stage,
            f"{what} {name!r} among the fields of {stage.inputs[0]!r}",
            "no such field",
            _named_or_added(name, record, stage.inputs[0]),
            term=name,
        )


def _named_or_added(name: str, record: RecordType, stream: str) -> str | None:
    """The field that was probably meant; where none is alike, that it be made."""
    if difflib.get_close_matches(name, record.names, n=1):
        return nearest(name, record.names)
    return f"a field {name!r} in what makes {stream!r}, which has {', '.join(record.names)}"


def type_is_kept(at: Index, stage: Stage) -> Faults:
    """The output has the type of the input."""
    made, read = at.streams[stage.outputs[0]].type, read_type(at, stage)
    if made != read:
        yield fault(
            stage,
            f"its output {stage.outputs[0]!r} to have its input's type {read}",
            str(made),
            differences(read, made),
            term=stage.outputs[0],
        )


def differences(read: RecordType, made: RecordType) -> str:
    """What to change in the second type to make it the first."""
    lacks = [f"'{field}'" for field in read.fields if field not in made.fields]
    more = [f"'{field}'" for field in made.fields if field not in read.fields]
    said = [f"add {', '.join(lacks)}"] if lacks else []
    said += [f"leave {', '.join(more)} out"] if more else []
    return "; ".join(said) or f"the same order, and the key {named(read.key)}"


def key_is_kept(at: Index, stage: Stage) -> Faults:
    """A record stays the record of the same key."""
    made, read = at.streams[stage.outputs[0]].type, read_type(at, stage)
    if made.key != read.key:
        yield fault(
            stage,
            f"its output to keep the key {named(read.key)}",
            named(made.key),
            f"by {', '.join(read.key)} in the type of {stage.outputs[0]!r}",
            term=stage.outputs[0],
        )


def lengths_are_of_its_dims(at: Index, stage: Stage) -> Faults:
    """Expected lengths are positive numbers, or means of such, of ragged dims that it makes."""
    record = at.streams[stage.outputs[0]].type
    dims = sorted({name for field in record.fields for name in field.ragged})
    for name, value in attribute(stage, "expect").items():
        if name not in dims:
            wanted = f"a ragged dim of its records ({', '.join(dims) or 'they have none'})"
            yield fault(stage, wanted, repr(name), nearest(name, dims), term=name)
        mean = value.get("mean") if isinstance(value, Mapping) else value
        if isinstance(mean, bool) or not isinstance(mean, int | float) or not 0 < mean < math.inf:
            expects = f"a number above 0 of {name!r}"
            yield fault(stage, expects, repr(value), f"{name}: 1", term=name)


def kept_fields_are_the_same(at: Index, stage: Stage) -> Faults:
    """What a map hands on past its function has one type on both sides."""
    read, made = read_type(at, stage), at.streams[stage.outputs[0]].type
    for name in attribute(stage, "keeps"):
        yield from missing_field(stage, read, name, "kept field")
        if read.field(name) and made.field(name) != read.field(name):
            got = f"'{made.field(name)}'" if made.field(name) else "no such field"
            expects, hint = (
                f"its output to have '{read.field(name)}', kept",
                f"keeps without {name!r}",
            )
            yield fault(stage, expects, got, hint, term=name)


def read_fields_are_there(at: Index, stage: Stage) -> Faults:
    """A filter reads fields of its records."""
    for name in attribute(stage, "reads"):
        yield from missing_field(stage, read_type(at, stage), name, "field")


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
    """The dim is the outermost ragged one of some field."""
    record, dim = read_type(at, stage), attribute(stage, "dim")
    outer = list(dict.fromkeys(field.ragged[0] for field in record.fields if field.ragged))
    if dim not in outer:
        yield fault(
            stage,
            f"{dim!r} to be the outermost ragged dim of a field of {stage.inputs[0]!r}",
            f"the type {record}",
            nearest(dim, outer),
            term=dim,
        )


def samples_are_read(at: Index, stage: Stage) -> Faults:
    """What is unnested or played are samples, not items or rows."""
    record = read_type(at, stage)
    if record.key != ("sample",):
        yield fault(
            stage,
            "samples, keyed by 'sample'",
            f"records by {named(record.key)}",
            f"read what {stage.inputs[0]!r} is made from",
            term=stage.inputs[0],
        )


def items_have_keys(at: Index, stage: Stage) -> Faults:
    """Items are keyed by sample and item."""
    made = at.streams[stage.outputs[0]].type
    if made.key != ("sample", "item"):
        yield fault(
            stage,
            "its output to be keyed by 'sample', 'item'",
            named(made.key),
            f"by sample, item in the type of {stage.outputs[0]!r}",
            term=stage.outputs[0],
        )


def apply_has_a_module(at: Index, stage: Stage) -> Faults:
    """One module is applied."""
    if len(stage.modules) != 1:
        hint = "an apply stage for each" if stage.modules else "modules=(<the module to apply>)"
        yield fault(stage, "one module", str(len(stage.modules)), hint, term="modules")


def apply_has_its_fields(at: Index, stage: Stage) -> Faults:
    """The module's inputs are fields of the stream."""
    for name in attribute(stage, "inputs"):
        yield from missing_field(stage, read_type(at, stage), name, "module input")


def apply_makes_its_output(at: Index, stage: Stage) -> Faults:
    """The module's output is a float field of the result."""
    made, name = at.streams[stage.outputs[0]].type, attribute(stage, "output")
    output = made.field(name)
    if output is None or output.dtype not in FLOATS:
        got = f"'{output}'" if output else "no such field"
        expects = f"its output stream to have a float field {name!r}"
        yield fault(stage, expects, got, nearest(name, made.names), term=stage.outputs[0])


RECORD_RULES: dict[str, tuple[StageRule, ...]] = {
    "source": (lengths_are_of_its_dims,),
    "map": (key_is_kept, kept_fields_are_the_same),
    "filter": (type_is_kept, read_fields_are_there, filter_decides_early),
    "group": (type_is_kept,),
    "unnest": (unnest_has_its_dim, samples_are_read, items_have_keys),
    "apply": (apply_has_a_module, apply_has_its_fields, apply_makes_its_output, key_is_kept),
    "episodes": (samples_are_read,),
    "pack": (type_is_kept,),
}
