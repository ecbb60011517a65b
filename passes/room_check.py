"""A wired plan as a bounded net: whether its tasks ever wait for one another for ever."""

from collections.abc import Sequence
from dataclasses import replace

from flowgraph.ir.index import index
from flowgraph.ir.plan import Channel
from flowgraph.passes.bounded import PORTIONS, Net, Worker, backward_of, stuck
from flowgraph.passes.demand import batch_of
from flowgraph.passes.state import State
from flowgraph.passes.traffic import record_bytes

POOLED = ("in-process", "shared-memory", "zeromq")
"""Transports whose records lie in the pools of the hosts."""

SHARES = 4
"""Workers over which a group's records are taken to spread, at most: some get more than others."""


def still(state: State) -> dict[str, str]:
    """Who would wait for ever and for what, by the channels' budgets or by the pools alone."""
    pooled = [c for c in state.channels if c.transport in POOLED and c.kind != "weights"]
    net = bounded_net(state, pooled, state.schedule.ahead if state.schedule else 0)
    return stuck(net) or stuck(replace(net, channels={}))


def bounded_net(state: State, pooled: Sequence[Channel], ahead: int) -> Net:
    """The wired tasks as far as room in channels and pools goes."""
    at = index(state.graph)
    portion: dict[str, float] = {}
    gradients: dict[str, str] = {}
    for channel in pooled:
        stream = at.streams[channel.stream]
        a_record = record_bytes(stream.type, state.lengths.get(stream.name, {}))
        records = batch_of(state.graph) * float(state.rates[stream.name]) / PORTIONS
        portion[stream.name] = records * a_record
        if channel.kind == "gradient":
            maker = at.producer(stream.name.removesuffix(".gradient"))
            gradients[stream.name] = maker.name if maker else ""
    workers, applies = [], []
    for task in state.tasks:
        back = [g for g in gradients if at.streams[g].producer in task.stages]
        worker = Worker(
            name=task.name,
            pool=task.group,
            inputs=tuple(name for name in task.inputs if name in portion),
            outputs=tuple(name for name in (*task.outputs, *back) if name in portion),
            versioned=task.versioned,
            whole=task.kind == "train",
            trains=task.kind == "train",
        )
        workers.append(worker)
        applies += [worker] if task.kind == "apply" else []
    return Net(
        workers=(*workers, *backward_of(applies, gradients)),
        portion=portion,
        channels={channel.stream: float(channel.capacity_bytes) for channel in pooled},
        pools={g.name: float(state.pool_bytes * min(g.replicas, SHARES)) for g in state.groups},
        ahead=ahead,
    )
