"""The apply stage: a module's forward over records."""

from collections.abc import Sequence

from flowgraph.dsl.draft import Draft
from flowgraph.dsl.fields import TensorType
from flowgraph.dsl.location import refuse
from flowgraph.dsl.models import ModuleRef
from flowgraph.dsl.suggest import choices
from flowgraph.ir.graph import Module, Stage, Stream
from flowgraph.ir.types import Dim, Dtype, Field, Ragged, RecordType, Symbol


def add_apply(
    draft: Draft,
    stream: str,
    module: ModuleRef,
    inputs: Sequence[str] | None,
    output: str,
    *,
    type: TensorType | None,
    name: str | None,
) -> Stream:
    """Record an apply; its records have the key and the module's output."""
    name = draft.claim("stage", name, f"{module.name}-apply")
    read = draft.streams[stream].type
    described = draft.modules[module.name]
    wanted = tuple(described.description.get("inputs") or ())
    handed = _handed(read, stream, inputs, wanted, f"apply '{name}'")
    made = _output_field(described, output, handed, type)
    keys = tuple(field for field in read.fields if field.name in read.key)
    if output in read.key or not output.isidentifier():
        raise refuse(f"apply '{name}': output names a field, got '{output}'")
    stage = Stage(
        name=name,
        op="apply",
        inputs=(stream,),
        outputs=(name,),
        attributes={"inputs": tuple(field.name for field in handed), "output": output},
        modules=(module.name,),
        devices=1,
    )
    draft.add(stage, RecordType(fields=(*keys, made), key=read.key))
    return draft.streams[name]


def _handed(
    read: RecordType,
    stream: str,
    inputs: Sequence[str] | None,
    wanted: tuple[str, ...],
    role: str,
) -> tuple[Field, ...]:
    """The fields handed to the module: those named, else those it is described to want, else all.

    Keys are never handed over.
    """
    own = {field.name: field for field in read.fields if field.name not in read.key}
    if inputs is None:
        inputs = wanted or tuple(own)
    if isinstance(inputs, str) or not inputs:
        raise refuse(f"{role}: inputs lists field names, got {inputs!r}")
    for name in inputs:
        if name not in own:
            raise refuse(
                f"{role}: expects field '{name}', stream '{stream}' has no such field",
                hint=choices(name, own, what="field"),
            )
    missing = next((name for name in wanted if name not in inputs), None)
    if missing is not None:
        raise refuse(
            f"{role}: the module reads '{missing}', which is not among its inputs "
            f"{', '.join(inputs)}",
            hint=f"inputs={wanted!r}",
        )
    return tuple(own[name] for name in inputs)


def _output_field(
    module: Module, output: str, handed: tuple[Field, ...], type: TensorType | None
) -> Field:
    """The declared type, else what the description says: rows of a width, ragged as the inputs."""
    if type is not None:
        return Field(name=output, dtype=type.dtype, dims=type.dims)
    width = module.description.get("out_width") or Symbol(f"{output}_width")
    dims: tuple[Dim, ...] = (width,)
    if any(field.ragged for field in handed):
        dims = (Ragged(output), width)
    dtype: Dtype = module.dtype  # type: ignore[assignment]  # checked when the module was declared
    return Field(name=output, dtype=dtype, dims=dims)
