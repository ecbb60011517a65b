"""The train stage: which modules, on which fields, by which loss, in which steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flowgraph.algorithms.algorithm import Algorithm
from flowgraph.dsl.credit import add_credit
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import AnyFunction, refer, resolve
from flowgraph.dsl.location import refuse
from flowgraph.dsl.models import ModuleRef
from flowgraph.dsl.optimizers import Optimizer, Schedule
from flowgraph.dsl.signature import check_parameters
from flowgraph.dsl.staleness import bounded_staleness
from flowgraph.dsl.structure import require_tokens
from flowgraph.dsl.suggest import choices
from flowgraph.dsl.units import Tokens, real, whole
from flowgraph.ir.graph import FunctionRef, Stage

_MADE_BY_TRAINERS = {"behaviour_logprobs": "logprobs", "reference_logprobs": ""}
"""Fields that a loss may need and no stream has: the stream's field each is made from."""


def add_train(
    draft: Draft,
    stream: str,
    module: ModuleRef,
    encoders: Sequence[ModuleRef],
    loss: Algorithm | AnyFunction,
    *,
    batch: int,
    micro_batch: Tokens | int,
    optimizer: Optimizer,
    schedule: Schedule,
    clip: float,
    updates: int,
    staleness: int,
    reference: ModuleRef | None,
    name: str | None,
) -> Stage:
    """Record a train stage, after the credit stage that its algorithm needs."""
    name = draft.claim("stage", name, f"train-{module.name}")
    role = f"train '{name}'"
    algorithm, function = _loss(loss, role)
    _check_modules(draft, stream, module, encoders, role)
    _check_reference(draft, algorithm, module, reference, role)
    attributes = {
        "batch": whole(batch, f"{role}: batch, in source samples", least=1),
        "updates": whole(updates, f"{role}: updates a step", least=1),
        "micro_batch": _micro_batch(draft, stream, micro_batch, role),
        "optimizer": optimizer.data(),
        "schedule": schedule.data(),
        "clip": real(clip, f"{role}: clip, a gradient norm (0: no clipping)", least=0),
        "needs": algorithm.needs,
        "reference": reference.name if reference else "",
        **bounded_staleness(draft, stream, staleness, (module, *encoders), algorithm, role),
    }
    _check_batch(draft, attributes, role)
    _check_fields(draft, stream, algorithm, role)
    _check_joins(draft, stream, role)
    _check_temperature(draft, stream, role)
    if algorithm.credit:
        stream = add_credit(draft, stream, algorithm, name)
    if reference and _alike(draft, module, reference):
        frozen = draft.modules[reference.name]
        draft.modules[reference.name] = replace(frozen, starts_as=module.name)
    return draft.add(
        Stage(
            name=name,
            op="train",
            inputs=(stream,),
            attributes=attributes,
            function=function,
            modules=(module.name, *(encoder.name for encoder in encoders)),
            devices=1,
        )
    )


def _loss(loss: Algorithm | AnyFunction, role: str) -> tuple[Algorithm, FunctionRef]:
    """The algorithm, and its loss by name. A plain function is a loss that needs nothing more."""
    if isinstance(loss, Algorithm):
        function = resolve(loss.loss, role=f"{role}: loss")
        algorithm = loss
    else:
        function = loss
        algorithm = Algorithm(name=getattr(loss, "__name__", "loss"), loss="")
    params = dict(algorithm.loss_params)
    reference = refer(function, params, role=f"{role}: loss")
    given = ("the outputs", "the fields")
    check_parameters(function, params, role=f"{role}: loss", given=given)
    return algorithm, reference


def _check_modules(
    draft: Draft, stream: str, module: ModuleRef, encoders: Sequence[ModuleRef], role: str
) -> None:
    listed = (module, *encoders)
    for one in listed:
        if draft.modules[one.name].trainable is False:
            raise refuse(
                f"{role}: module '{one.name}' is not trainable ({draft.modules[one.name].at})",
                hint=f"trainable=True there, or leave '{one.name}' out here",
            )
    for stage in draft.stages.values():
        if stage.op == "train" and module.name in stage.modules:
            raise refuse(
                f"{role}: module '{module.name}' is trained already, by '{stage.name}' "
                f"({stage.at})",
                hint="train one of the streams, or give the other one its own module",
            )
    applied = {m: stage for stage in draft.upstream(stream) for m in stage.modules}
    for one in encoders:
        if one.name not in applied:
            raise refuse(
                f"{role}: no output of module '{one.name}' reaches stream '{stream}'",
                hint=choices(one.name, applied, what="applied module"),
            )
    names = {one.name for one in listed}
    for other, stage in applied.items():
        if draft.modules[other].trainable is not False and other not in names:
            raise refuse(
                f"{role}: module '{other}' is trainable and its output is trained on "
                f"({stage.at}), but it is not among the modules trained here",
                hint=f".train({module.name}, {other}, ...), or trainable=False",
            )


def _check_reference(
    draft: Draft,
    algorithm: Algorithm,
    module: ModuleRef,
    reference: ModuleRef | None,
    role: str,
) -> None:
    wanted = "reference_logprobs" in algorithm.needs
    if wanted and reference is None:
        raise refuse(
            f"{role}: {algorithm.name} reads log-probabilities of a reference module",
            hint='reference=g.module("reference", fg.model(...), trainable=False), or kl=0',
        )
    if reference and not wanted:
        raise refuse(f"{role}: {algorithm.name} reads no reference", hint="kl=0.05, or leave it")
    if reference and draft.modules[reference.name].trainable is not False:
        raise refuse(
            f"{role}: the reference '{reference.name}' must stay as it is",
            hint="trainable=False where it is declared",
        )
    taken = draft.modules[reference.name].starts_as if reference else ""
    if reference and taken and _alike(draft, module, reference):
        raise refuse(
            f"{role}: the reference '{reference.name}' has the initial weights of '{taken}', which "
            "it is the reference of already",
            hint=f"a module of its own as the reference of '{module.name}'",
        )


def _alike(draft: Draft, module: ModuleRef, reference: ModuleRef) -> bool:
    """Made in the same way: then the reference is what the module is before its first update."""
    mine, other = draft.modules[module.name], draft.modules[reference.name]
    return (mine.factory, mine.dtype) == (other.factory, other.dtype)


def _micro_batch(draft: Draft, stream: str, micro_batch: Tokens | int, role: str) -> int:
    """Tokens a micro-batch, which must hold a packed row."""
    count = micro_batch.count if isinstance(micro_batch, Tokens) else micro_batch
    count = whole(count, f"{role}: micro_batch, in tokens", least=1)
    pack = next((stage for stage in draft.upstream(stream) if stage.op == "pack"), None)
    if pack and pack.attributes["tokens"] > count:
        raise refuse(
            f"{role}: a micro-batch of {count} tokens cannot hold a row of "
            f"{pack.attributes['tokens']} tokens (pack '{pack.name}', {pack.at})",
            hint=f"micro_batch=fg.tokens({pack.attributes['tokens']})",
        )
    return count


def _check_batch(draft: Draft, attributes: dict[str, Any], role: str) -> None:
    """`updates` divides the batch; all train stages take the same steps."""
    batch, updates = attributes["batch"], attributes["updates"]
    if batch % updates:
        raise refuse(
            f"{role}: {batch} samples cannot be cut into {updates} equal updates",
            hint=f"batch={batch - batch % updates + updates}",
        )
    trains = [stage for stage in draft.stages.values() if stage.op == "train"]
    for other in trains:
        theirs = (other.attributes["batch"], other.attributes["updates"])
        if theirs != (batch, updates):
            raise refuse(
                f"{role}: batch={batch}, updates={updates}, but '{other.name}' has "
                f"batch={theirs[0]}, updates={theirs[1]} ({other.at})",
                hint="a step has one batch: give both the same",
            )


def _check_joins(draft: Draft, stream: str, role: str) -> None:
    """Items that are joined where the loss runs take the place of tokens, one stream of them."""
    found = ""
    while (stage := draft.producer(stream)).op in ("pack", "join"):
        stream = stage.inputs[0]
        key = draft.streams[stream].type.key
        for other in stage.inputs[1:]:
            if draft.streams[other].type.key == key:
                continue
            if stage.attributes["placeholder"] < 0:
                raise refuse(
                    f"{role}: join '{stage.name}' ({stage.at}) brings the items of '{other}', but "
                    "does not say which token they take the place of",
                    hint="join(..., placeholder=<token id>), one such token a feature",
                )
            if found:
                raise refuse(
                    f"{role}: the items of '{other}' and of '{found}' are joined, "
                    "but those of one stream can take the place of tokens",
                    hint="concatenate them in a map before they are encoded",
                )
            found = other


def _check_temperature(draft: Draft, stream: str, role: str) -> None:
    """What an agent samples at temperature 0 has probability 1, whatever is learned."""
    while (stage := draft.producer(stream)).op not in ("source", "episodes"):
        stream = stage.inputs[0]
    if stage.op == "source":
        return
    agent = draft.agents[stream.rpartition(".")[2]]
    if agent.sampling["temperature"] == 0:
        raise refuse(
            f"{role}: agent '{agent.name}' samples at temperature 0 ({agent.at}), where the "
            "likeliest token has probability 1 and nothing can be learned from it",
            hint="a temperature above 0 there; an agent with temperature=0 of the same module for "
            "what is not trained",
        )


def _check_fields(draft: Draft, stream: str, algorithm: Algorithm, role: str) -> None:
    """The stream has the tokens, the mask and what the loss needs."""
    type = draft.streams[stream].type
    tokens = require_tokens(type, stream, role)
    mask = type.field("loss_mask")
    if mask is None or mask.dims != tokens.dims:
        found = f"'{mask}'" if mask else "no such field"
        raise refuse(
            f"{role}: expects 'loss_mask', as long as '{tokens}', stream '{stream}' has {found}",
            hint=f'loss_mask: Annotated[list[float], fg.ragged("{tokens.ragged[0]}")], '
            "1 on tokens to learn",
        )
    wanted = [_MADE_BY_TRAINERS.get(need, need) for need in algorithm.needs]
    if algorithm.credit:
        wanted = [need for need in wanted if need != "advantage"]
        wanted += ["reward"] if type.field("advantage") is None else []
    for need in wanted:
        if need and type.field(need) is None:
            raise refuse(
                f"{role}: {algorithm.name} needs field '{need}', stream '{stream}' has no such "
                f"field",
                hint=choices(need, type.names, what="field"),
            )
