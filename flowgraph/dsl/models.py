"""Models and their uses: factories by name, modules (weights), agents (a module in rollout)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import AnyFunction, refer
from flowgraph.dsl.location import refuse, user_line
from flowgraph.dsl.plain import plain
from flowgraph.dsl.signature import check_parameters
from flowgraph.dsl.units import one_of
from flowgraph.ir.graph import FunctionRef, Module

_OURS = "flowgraph.models."
_DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A factory of a torch module, its parameters, and what planning knows of what it makes."""

    factory: FunctionRef
    description: dict[str, Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """Weights that were declared on a graph; made by `Graph.module`."""

    draft: Draft = field(repr=False, compare=False)
    name: str


@dataclass(frozen=True, slots=True)
class AgentRef:
    """A module's use in rollout; made by `Graph.agent`. `module`: whose weights it samples from."""

    draft: Draft = field(repr=False, compare=False)
    name: str
    module: ModuleRef


def model(factory: AnyFunction, **params: Any) -> ModelRef:
    """Name the factory of a torch module, called with these parameters by the workers that need it.

    >>> fg.model(fg.models.decoder, vocab=20, layers=2, width=64, heads=4)

    A factory of the user's may say what it makes, for planning, in an attribute `describe`: a
    function of the same parameters that returns plain data ({"kind": "generic", "parameters": n}).
    Raises GraphError at the user's line for parameters that the factory does not take.
    """
    role = f"model '{getattr(factory, '__name__', factory)}'"
    reference = refer(factory, params, role=role)
    check_parameters(factory, params, role=role)
    return ModelRef(reference, _describe(factory, reference, role))


def add_module(
    draft: Draft, name: str, model: ModelRef, *, trainable: bool | Sequence[str], dtype: str
) -> ModuleRef:
    """Record a module; no pattern at all trains nothing."""
    role = f"module '{name}'"
    if not isinstance(model, ModelRef):
        raise refuse(f"{role}: expects fg.model(factory, ...), got {type(model).__name__}")
    if isinstance(trainable, str):
        raise refuse(f"{role}: trainable lists patterns", hint=f"trainable=[{trainable!r}]")
    patterns = trainable if isinstance(trainable, bool) else tuple(map(str, trainable))
    name = draft.claim("module", name, name)
    draft.modules[name] = Module(
        name=name,
        factory=model.factory,
        trainable=patterns if patterns != () else False,
        dtype=one_of(dtype, f"{role}: dtype", _DTYPES),
        description=model.description,
        at=user_line(),
    )
    return ModuleRef(draft, name)


def _describe(factory: AnyFunction, reference: FunctionRef, role: str) -> dict[str, Any]:
    describe = getattr(factory, "describe", None)
    try:
        if describe is not None:
            found = describe(**reference.params)
        elif reference.module.startswith(_OURS):
            # Not at the top: graphs without our models need none of it.
            from flowgraph.models.descriptions import describe as describe_ours

            found = describe_ours(str(reference), reference.params)
        else:
            found = {"kind": "generic"}
    except (ValueError, TypeError, OSError) as error:
        raise refuse(f"{role}: {error}") from error
    data: dict[str, Any] = plain(found, f"{role}: description")
    return data
