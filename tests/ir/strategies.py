"""Graphs, plans and clusters of the right shape, legal or not: for laws of text and binary form."""

from typing import Any

from hypothesis import strategies as st

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.graph import Agent, FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.location import UNKNOWN, Location
from flowgraph.ir.ops import OPS
from flowgraph.ir.plan import (
    Alternative,
    Balance,
    Channel,
    Decision,
    Layout,
    Leg,
    Neighbour,
    Place,
    Plan,
    Prediction,
    Room,
    Schedule,
    Task,
    WorkerGroup,
)
from flowgraph.ir.types import DTYPES, Dim, Field, Ragged, RecordType, Symbol

words = st.sampled_from(["a", "b-c", "d.e", "by", "at", "null", "type", "graph", "true"])
texts = st.one_of(words, st.text(max_size=12))
ints = st.integers(-(2**63), 2**64 - 1)
counts = st.integers(0, 2**40)
# -0.0 equals a default of 0.0 and is left out like it: it comes back as 0.0.
floats = st.floats(allow_nan=False).map(lambda value: value + 0.0)
scalars = st.one_of(st.none(), st.booleans(), ints, floats, texts)
data: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)
maps = st.dictionaries(texts, data, max_size=3)
names = st.lists(texts, max_size=3).map(tuple)
places_in_files = st.one_of(st.just(UNKNOWN), st.builds(Location, texts, st.integers(0, 10**6)))


def many(values: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=most).map(tuple)


dims: st.SearchStrategy[Dim] = st.one_of(ints, st.builds(Symbol, texts), st.builds(Ragged, texts))
fields = st.builds(Field, name=texts, dtype=st.sampled_from(DTYPES), dims=many(dims, 3))
records = st.builds(RecordType, fields=many(fields, 3), key=names)
functions = st.builds(
    FunctionRef, module=texts, qualname=texts, path=texts, digest=texts, params=maps
)
modules = st.builds(
    Module,
    name=texts,
    factory=functions,
    trainable=st.one_of(st.booleans(), names),
    dtype=texts,
    starts_as=texts,
    description=maps,
    at=places_in_files,
)
agents = st.builds(
    Agent,
    name=texts,
    module=texts,
    engine=texts,
    sampling=maps,
    expect=maps,
    after=names,
    tokenizer=st.one_of(st.none(), functions),
    at=places_in_files,
)
stages = st.builds(
    Stage,
    name=texts,
    op=st.one_of(st.sampled_from(sorted(OPS)), texts),
    inputs=names,
    outputs=names,
    attributes=maps,
    function=st.one_of(st.none(), functions),
    modules=names,
    agents=names,
    devices=counts,
    at=places_in_files,
)
streams = st.builds(
    Stream,
    name=texts,
    producer=texts,
    type=records,
    kind=texts,
    delay=counts,
    at=places_in_files,
)
graphs = st.builds(
    Graph,
    name=texts,
    modules=many(modules),
    agents=many(agents),
    stages=many(stages),
    streams=many(streams),
    steps=counts,
    seed=ints,
    root=texts,
    settings=maps,
    cluster=texts,
    pins=maps,
)
kinds = st.builds(
    DeviceKind,
    name=texts,
    kind=texts,
    flops=many(st.tuples(texts, floats)),
    memory_bytes=counts,
    bandwidth=floats,
    slots=counts,
)
nodes = st.builds(
    Node,
    name=texts,
    device=texts,
    devices=counts,
    cores=counts,
    memory_bytes=counts,
    intra=floats,
    address=texts,
)
clusters = st.builds(
    Cluster, name=texts, kinds=many(kinds), nodes=many(nodes), inter=floats, trusted=st.booleans()
)
groups = st.builds(
    WorkerGroup,
    name=texts,
    kind=texts,
    module=texts,
    agents=names,
    replicas=counts,
    layout=st.builds(Layout, dp=counts, tp=counts, pp=counts, cp=counts),
    places=many(st.builds(Place, node=texts, device=st.integers(-1, 99))),
    slots=counts,
    max_length=counts,
    in_flight=counts,
    shares=texts,
    turn=counts,
    residency=texts,
)
rooms = st.builds(
    Room,
    group=texts,
    least=counts,
    most=counts,
    alternatives=many(
        st.builds(
            Alternative,
            layout=st.builds(Layout, dp=counts, recompute=st.booleans()),
            replicas=counts,
            seconds=floats,
            memory_bytes=counts,
        )
    ),
    move_seconds=floats,
)
tasks = st.builds(
    Task,
    name=texts,
    kind=texts,
    stages=names,
    group=texts,
    inputs=names,
    outputs=names,
    versioned=st.booleans(),
    gated=st.booleans(),
)
channels = st.builds(
    Channel,
    stream=texts,
    transport=texts,
    capacity_bytes=counts,
    capacity_records=counts,
    kind=texts,
    partition=texts,
)
decisions = st.builds(
    Decision,
    by=texts,
    subject=texts,
    name=texts,
    value=data,
    runner_up=data,
    binding=texts,
    pinned=st.booleans(),
)
plans = st.builds(
    Plan,
    graph=graphs,
    cluster=clusters,
    tasks=many(tasks),
    groups=many(groups),
    channels=many(channels),
    schedule=st.builds(
        Schedule, batch=counts, chunk=counts, unit=counts, updates=counts, ahead=counts, mode=texts
    ),
    pool_bytes=counts,
    prediction=st.builds(
        Prediction,
        step_seconds=floats,
        seconds=st.dictionaries(texts, floats, max_size=2),
        memory_bytes=st.dictionaries(texts, counts, max_size=2),
        rates=st.dictionaries(texts, texts, max_size=2),
        measured=names,
        times=st.dictionaries(texts, floats, max_size=2),
        bound_seconds=floats,
        memory_terms=st.dictionaries(texts, st.dictionaries(texts, counts, max_size=2), max_size=2),
        path=many(st.builds(Leg, work=texts, group=texts, seconds=floats)),
    ),
    decisions=many(decisions),
    rooms=many(rooms),
    balance=st.builds(
        Balance, by=texts, excess=floats, gain=floats, settle_seconds=floats, at_once=counts
    ),
    neighbours=many(
        st.builds(
            Neighbour,
            kind=texts,
            devices=st.sampled_from((-1, 1)),
            step_seconds=floats,
            changes=st.dictionaries(texts, texts, max_size=2),
            refusal=texts,
        )
    ),
)
