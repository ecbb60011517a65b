"""Rules of joins, and of what lies between an encoder and the loss that trains it."""

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, attribute
from flowgraph.ir.verify.faults import Faults, StageRule, fault, nearest
from flowgraph.ir.verify.records import named, read_type


def join_has_its_keys(at: Index, stage: Stage) -> Faults:
    """What is joined has the key of the first input, or that key and `item`."""
    first = read_type(at, stage)
    for name in stage.inputs[1:]:
        other = at.streams[name].type
        if other.key not in (first.key, (*first.key, "item")):
            yield fault(
                stage,
                f"stream {name!r} to be keyed by {named(first.key)} or "
                f"{named((*first.key, 'item'))}, as {stage.inputs[0]!r} is",
                named(other.key),
                f"join a stream by {', '.join(first.key)}, or leave {name!r} out",
                term=name,
            )


def joined_fields_are_of_one_input(at: Index, stage: Stage) -> Faults:
    """A field, but for keys, is in one of the inputs of a join."""
    first = read_type(at, stage)
    for name in stage.inputs[1:]:
        other = at.streams[name].type
        for field in other.fields:
            if field.name not in other.key and first.field(field.name):
                yield fault(
                    stage,
                    "a field in one of its inputs only",
                    f"{field.name!r} in {stage.inputs[0]!r} and {name!r}",
                    "name the output of one of them differently",
                    term=name,
                )


def join_keeps_the_first_key(at: Index, stage: Stage) -> Faults:
    """What a join makes has the key of its first input."""
    first, made = read_type(at, stage), at.streams[stage.outputs[0]].type
    if made.key != first.key:
        hint = f"by {', '.join(first.key)} in the type of {stage.outputs[0]!r}"
        expects = f"its output to be keyed by {named(first.key)}"
        yield fault(stage, expects, named(made.key), hint, term=stage.outputs[0])


def join_makes_all_fields(at: Index, stage: Stage) -> Faults:
    """The output has the first input's fields and the others', items' with a dim in front."""
    first, made = read_type(at, stage), at.streams[stage.outputs[0]].type
    for name in stage.inputs:
        record = at.streams[name].type
        nested = record.key != first.key
        for field in record.fields:
            if field.name in record.key and nested:
                continue
            found = made.field(field.name)
            if found is None or found.dtype != field.dtype or found.dims[nested:] != field.dims:
                got = f"'{found}'" if found else "no such field"
                front = ", with a ragged dim in front" if nested else ""
                hint = f"'{field}'{front}, in the type of {stage.outputs[0]!r}"
                expects = f"its output to have '{field}' of {name!r}"
                yield fault(stage, expects, got, hint, term=stage.outputs[0])


def encoders_are_applied(at: Index, stage: Stage) -> Faults:
    """What is trained beside the first module is applied to what the stage trains on."""
    applied = _applied(at, stage)
    for name in stage.modules[1:]:
        if name not in applied:
            yield fault(
                stage,
                f"module {name!r} applied to what it trains on",
                "no such apply stage before it",
                nearest(name, applied) or f"train {stage.modules[0]!r} alone",
                term=name,
            )


def gradients_can_return(at: Index, stage: Stage) -> Faults:
    """Gradients return by the way that features came, on which only joins and packs lie."""
    inner, applied = _through_joins(at, stage), _applied(at, stage)
    for name in stage.modules[1:]:
        if name in applied and applied[name].name not in inner:
            yield fault(
                stage,
                f"only joins and packs between {applied[name].name!r} and itself, for the gradient "
                f"of {name!r} to return",
                "other stages",
                f"do them before {applied[name].name!r}, or train {stage.modules[0]!r} alone",
                term=name,
            )


def _applied(at: Index, stage: Stage) -> dict[str, Stage]:
    return {m: s for s in at.ancestors(stage) if s.op == "apply" for m in s.modules}


def _through_joins(at: Index, stage: Stage) -> set[str]:
    """Apply stages from which only joins and packs lead here."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        for parent in at.parents(waiting.pop()):
            if parent.op == "apply":
                found.add(parent.name)
            elif parent.op in ("join", "pack"):
                waiting.append(parent)
    return found


def joined_items_replace_tokens(at: Index, stage: Stage) -> Faults:
    """Items joined where the loss runs stand for placeholder tokens."""
    for join in _joins_before(at, stage):
        for name in _items_of(at, join):
            if attribute(join, "placeholder") < 0:
                yield fault(
                    join,
                    f"a placeholder, the token that the items of {name!r} take the place of in "
                    f"{stage.name!r}",
                    "none",
                    "placeholder=<token id>, one such token a feature",
                    term="placeholder",
                )


def items_are_of_one_stream(at: Index, stage: Stage) -> Faults:
    """One stream has the items that take the place of tokens."""
    found = [name for join in _joins_before(at, stage) for name in _items_of(at, join)]
    if len(found) > 1:
        yield fault(
            stage,
            "items of one stream, to take the place of tokens",
            ", ".join(map(repr, found)),
            f"leave {found[0]!r} out, or join it where no loss runs",
        )


def _items_of(at: Index, join: Stage) -> list[str]:
    """Inputs of a join that are items of its records."""
    key = read_type(at, join).key
    return [name for name in join.inputs[1:] if at.streams[name].type.key != key]


def _joins_before(at: Index, stage: Stage) -> list[Stage]:
    """Joins whose records this train stage reads, but for packs just as they are."""
    found: list[Stage] = []
    before = at.producer(stage.inputs[0])
    while before is not None and before.op in ("join", "pack"):
        found += [before] if before.op == "join" else []
        before = at.producer(before.inputs[0])
    return found


def features_stay_in_trainers(at: Index, stage: Stage) -> Faults:
    """Features that take the place of tokens do so where the loss runs, which must do the join."""
    waiting = [stage] if attribute(stage, "placeholder") >= 0 else []
    while waiting:
        for reader in at.children(waiting.pop()):
            if reader.op in ("join", "pack"):
                waiting.append(reader)
            elif reader.op != "train":
                yield fault(
                    stage,
                    "to be read by train stages only, since it names a placeholder",
                    f"{reader.name!r}, a {reader.op}",
                    f"join once more for {reader.name!r}, without a placeholder",
                )


JOIN_RULES: dict[str, tuple[StageRule, ...]] = {
    "join": (
        join_has_its_keys,
        joined_fields_are_of_one_input,
        join_keeps_the_first_key,
        join_makes_all_fields,
        features_stay_in_trainers,
    ),
    "train": (
        encoders_are_applied,
        gradients_can_return,
        joined_items_replace_tokens,
        items_are_of_one_stream,
    ),
}
