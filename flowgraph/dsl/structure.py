"""Stages that rearrange records and run no code of the user's: group, unnest, join, pack."""

from collections.abc import Sequence
from dataclasses import replace

from flowgraph.dsl.draft import Draft
from flowgraph.dsl.group_sizes import check_size
from flowgraph.dsl.location import refuse
from flowgraph.dsl.suggest import choices
from flowgraph.dsl.units import Tokens, one_of, real, whole
from flowgraph.ir.graph import Stage, Stream
from flowgraph.ir.types import ITEM, SAMPLE, Field, Ragged, RecordType

_OVER_LONG = ("error", "drop", "truncate", "split")
_COSTS = ("attention", "tokens")


def add_group(
    draft: Draft, stream: str, by: str | Sequence[str], size: int, *, name: str | None
) -> Stream:
    """Record a group; what it reads and makes has one type, since groups are marked by the key."""
    name = draft.claim("stage", name, f"{_plain(stream)}-groups")
    type = draft.streams[stream].type
    keys = tuple(_key_field(draft, type, key, name) for key in _listed(by))
    if not keys or keys[0] != "sample":
        raise refuse(
            f"group '{name}': the first key is the sample, got {', '.join(keys) or 'none'}",
            hint=f"by={('sample', *(key for key in keys if key != 'sample'))!r}",
        )
    size = whole(size, f"group '{name}': size, in rows (0: data decides)", least=0)
    check_size(draft, stream, keys, size, f"group '{name}'")
    stage = Stage(
        name=name,
        op="group",
        inputs=(stream,),
        outputs=(name,),
        attributes={"by": keys, "size": size},
    )
    draft.add(stage, type)
    return draft.streams[name]


def add_unnest(draft: Draft, stream: str, dim: str, *, expect: float, name: str | None) -> Stream:
    """Record an unnest: of the fields that start with the ragged dim, each entry is an item."""
    name = draft.claim("stage", name, dim if dim.isidentifier() else "items")
    type = draft.streams[stream].type
    outer = {field.ragged[0]: None for field in type.fields if field.ragged}
    if dim not in outer:
        raise refuse(
            f"unnest '{name}': no field of stream '{stream}' starts with the ragged dim '{dim}'",
            hint=choices(dim, outer, what="ragged dim"),
        )
    if type.key != ("sample",):
        raise refuse(
            f"unnest '{name}': expects samples, stream '{stream}' has records by "
            f"({', '.join(type.key)})",
            hint="unnest the stream of samples itself",
        )
    items = tuple(
        replace(field, dims=field.dims[1:]) for field in type.fields if field.ragged[:1] == (dim,)
    )
    stage = Stage(
        name=name,
        op="unnest",
        inputs=(stream,),
        outputs=(name,),
        attributes={
            "dim": dim,
            "expect": real(expect, f"unnest '{name}': expect, items a sample", above=0),
        },
    )
    draft.add(stage, RecordType(fields=(SAMPLE, ITEM, *items), key=("sample", "item")))
    return draft.streams[name]


def add_join(
    draft: Draft, stream: str, others: Sequence[str], placeholder: int, *, name: str | None
) -> Stream:
    """Record a join: the stream's records with the fields of the others' records of the same key.

    A field of items arrives with their dim in front, as it was before the unnest.
    """
    name = draft.claim("stage", name, f"{_plain(stream)}-join")
    if not others:
        raise refuse(f"join '{name}': expects a stream to join '{stream}' with")
    type = draft.streams[stream].type
    for other in others:
        type = _merged(draft, name, type, stream, other)
    least = f"join '{name}': placeholder, a token id (-1: features replace no tokens)"
    stage = Stage(
        name=name,
        op="join",
        inputs=(stream, *others),
        outputs=(name,),
        attributes={"placeholder": whole(placeholder, least, least=-1)},
    )
    draft.add(stage, type)
    return draft.streams[name]


def add_pack(
    draft: Draft,
    stream: str,
    tokens: int | Tokens,
    over_long: str,
    cost: str,
    *,
    name: str | None,
) -> Stream:
    """Record a pack; a record of its stream is still one sample, now with a place in a row."""
    name = draft.claim("stage", name, f"{_plain(stream)}-pack")
    type = draft.streams[stream].type
    require_tokens(type, stream, f"pack '{name}'")
    count = tokens.count if isinstance(tokens, Tokens) else tokens
    stage = Stage(
        name=name,
        op="pack",
        inputs=(stream,),
        outputs=(name,),
        attributes={
            "tokens": whole(count, f"pack '{name}': tokens a row", least=1),
            "over_long": one_of(over_long, f"pack '{name}': over_long", _OVER_LONG),
            "cost": one_of(cost, f"pack '{name}': cost", _COSTS),
        },
    )
    draft.add(stage, type)
    return draft.streams[name]


def require_tokens(type: RecordType, stream: str, role: str) -> Field:
    """The field `tokens` of ragged int64. Raises GraphError at the user's line."""
    field = type.field("tokens")
    if field is None:
        raise refuse(
            f"{role}: expects field 'tokens', stream '{stream}' has no such field",
            hint=choices("tokens", type.names, what="field"),
        )
    if field.dtype not in ("int32", "int64") or field.dims[1:] or not field.ragged:
        raise refuse(
            f"{role}: expects 'tokens: int64[tokens*]', stream '{stream}' has '{field}'",
            hint="tokens: list[int]",
        )
    return field


def _merged(draft: Draft, name: str, type: RecordType, stream: str, other: str) -> RecordType:
    found = draft.streams[other].type
    new = [field for field in found.fields if field.name not in found.key]
    clash = next((field.name for field in new if type.field(field.name)), None)
    if clash is not None:
        raise refuse(
            f"join '{name}': streams '{stream}' and '{other}' both have field '{clash}'",
            hint="name the output of one of them differently",
        )
    if found.key == type.key:
        _check_partners(draft, name, stream, other)
        return replace(type, fields=(*type.fields, *new))
    if found.key != (*type.key, "item"):
        raise refuse(
            f"join '{name}': stream '{stream}' has records by ({', '.join(type.key)}), "
            f"'{other}' by ({', '.join(found.key)}): neither the same key nor items of it",
            hint="join samples with what was unnested from them, or rows with rows",
        )
    dim = next(s.attributes["dim"] for s in draft.upstream(other) if s.op == "unnest")
    nested = [replace(field, dims=(Ragged(dim), *field.dims)) for field in new]
    return replace(type, fields=(*type.fields, *nested))


def _check_partners(draft: Draft, name: str, stream: str, other: str) -> None:
    """No record of the stream lost its partner to a filter of rows."""
    own = {stage.name for stage in draft.upstream(stream)}
    for stage in draft.upstream(other):
        if stage.op == "filter" and stage.name not in own:
            if draft.streams[stage.inputs[0]].type.key == ("sample",):
                continue  # it decides membership, so that no branch has what it leaves out
            raise refuse(
                f"join '{name}': filter '{stage.name}' ({stage.at}) leaves records out of "
                f"'{other}', so that records of '{stream}' would find none of their key",
                hint="filter what is joined, behind the join or in both",
            )


def _key_field(draft: Draft, type: RecordType, key: str, name: str) -> str:
    """A key field by its name; a sample also goes by `task` and by its source's name."""
    sources = [stage.name for stage in draft.stages.values() if stage.op == "source"]
    if key in ("task", *sources):
        return "sample"
    if key not in type.key:
        raise refuse(
            f"group '{name}': '{key}' is no key of the records, which are by "
            f"({', '.join(type.key)})",
            hint=choices(key, ("task", *type.key), what="key"),
        )
    return key


def _listed(by: str | Sequence[str]) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def _plain(stream: str) -> str:
    """A stream's name as the beginning of a stage's."""
    return stream.replace(".", "-")
