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

    Returns the stream to train on.
    """
    assert algorithm.credit is not None
    role = f"train '{train}': credit"
    last = stream
    follower = ""
    while (producer := draft.producer(stream)).op in ("pack", "join"):
        follower, stream = producer.name, producer.inputs[0]
    group = next((stage for stage in draft.upstream(stream) if stage.op == "group"), None)
    if group is None:
        raise refuse(
            f"train '{train}': {algorithm.name} compares the rewards of a group, "
            f"but stream '{stream}' is not grouped",
            hint='.group(by="task") before .train(...)',
        )
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
            "group": group.attributes["by"] if algorithm.credit_scope == "group" else (),
        },
        function=refer(function, params, role=role),
    )
    type = draft.streams[stream].type
    credited = replace(type, fields=(*type.fields, _ADVANTAGE))
    if not follower:
        draft.add(stage, credited)
        return name
    draft.add_before(follower, stage, credited)
    _carry_advantage(draft, follower, last)
    return last


def _carry_advantage(draft: Draft, first: str, last: str) -> None:
    """Streams from stage `first` on to stream `last` carry the new field too."""
    stream = last
    while True:
        found = draft.streams[stream]
        type = replace(found.type, fields=(*found.type.fields, _ADVANTAGE))
        draft.streams[stream] = replace(found, type=type)
        if found.producer == first:
            return
        stream = draft.producer(stream).inputs[0]
