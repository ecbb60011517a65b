"""The credit stage: from the rewards of whole groups to an advantage a row."""

from dataclasses import replace

from flowgraph.algorithms.algorithm import Algorithm
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import refer, resolve
from flowgraph.dsl.location import refuse
from flowgraph.dsl.signature import check_parameters
from flowgraph.ir.graph import Stage
from flowgraph.ir.types import Field

_ADVANTAGE = Field(name="advantage", dtype="float32")


def add_credit(draft: Draft, stream: str, algorithm: Algorithm, train: str) -> str:
    """Record `<train>.credit`, in front of packs and joins, which run where the loss does.

    Returns the stream to train on. Nothing is recorded when the stream has an advantage that the
    user made.
    """
    assert algorithm.credit is not None
    role = f"train '{train}': credit"
    if draft.streams[stream].type.field("advantage") is not None:
        _check_own(draft, stream, role)
        return stream
    last = stream
    follower = ""
    while (producer := draft.producer(stream)).op in ("pack", "join"):
        follower, stream = producer.name, producer.inputs[0]
    group = _group(draft, stream, algorithm, train)
    function = resolve(algorithm.credit, role=role)
    params = dict(algorithm.credit_params)
    check_parameters(function, params, role=role, given=("the rewards", "the group offsets"))
    name = f"{train}.credit"
    stage = Stage(
        name=name,
        op="map",
        inputs=(stream,),
        outputs=(name,),
        attributes={
            "credit": True,
            "group": group.attributes["by"],
            "size": group.attributes["size"],
        },
        function=refer(function, params, role=role),
    )
    type = draft.streams[stream].type
    credited = replace(type, fields=(*type.fields, _ADVANTAGE))
    if not follower:
        draft.add(stage, credited)
        return name
    carrying = _between(draft, follower, last)
    _check_alone(draft, carrying, role)
    draft.add_before(follower, stage, credited)
    for carrier in carrying:
        found = draft.streams[carrier]
        type = replace(found.type, fields=(*found.type.fields, _ADVANTAGE))
        draft.streams[carrier] = replace(found, type=type)
    return last


def _group(draft: Draft, stream: str, algorithm: Algorithm, train: str) -> Stage:
    """The nearest group stage that the stream comes from."""
    group = next((stage for stage in draft.upstream(stream) if stage.op == "group"), None)
    if group is None:
        raise refuse(
            f"train '{train}': {algorithm.name} compares the rewards of a group, "
            f"but stream '{stream}' is not grouped",
            hint='.group(by="task") before .train(...)',
        )
    return group


def _check_own(draft: Draft, stream: str, role: str) -> None:
    """The advantage was not made for another train stage."""
    for stage in draft.upstream(stream):
        if stage.attributes.get("credit"):
            raise refuse(
                f"{role}: stream '{stream}' carries the advantage of '{stage.name}' ({stage.at})",
                hint="join or pack the grouped rows once more, for this train stage",
            )


def _check_alone(draft: Draft, carrying: list[str], role: str) -> None:
    """No stage has read what is about to gain a field."""
    makers = {draft.streams[stream].producer for stream in carrying}
    for stage in draft.stages.values():
        for stream in set(stage.inputs) & set(carrying):
            if stage.name not in makers:
                raise refuse(
                    f"{role}: stream '{stream}' is read by '{stage.name}' too ({stage.at}), "
                    "which wants no advantage",
                    hint="join the grouped rows once more, for this train stage",
                )


def _between(draft: Draft, first: str, last: str) -> list[str]:
    """The streams from the output of stage `first` on to stream `last`, in that order."""
    chain = [last]
    while draft.streams[chain[0]].producer != first:
        chain.insert(0, draft.producer(chain[0]).inputs[0])
    return chain
