"""The plan whose records the core handles in the benchmark: a source with a map, and a trainer."""

from dataclasses import replace

from benchmarks.compile.graphs import ROW, cores, decoder_module
from flowgraph.ir.graph import FunctionRef, Graph, Stage, Stream
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph


def small_plan() -> Plan:
    """One host and one rank that may hold any number of records; a micro-batch is one record."""
    function = FunctionRef(module="example", qualname="f", path="example.py")
    train = {"batch": 64, "micro_batch": 1, "optimizer": {"name": "adam", "lr": 1e-3}}
    graph = Graph(
        name="records",
        steps=1,
        modules=(decoder_module("lm"),),
        stages=(
            Stage(name="rows", op="source", outputs=("rows",), function=function),
            Stage(
                name="train",
                op="train",
                inputs=("rows",),
                attributes=train,
                function=function,
                modules=("lm",),
            ),
        ),
        streams=(Stream(name="rows", producer="rows", type=ROW),),
    )
    plan = compile_graph(graph, cores(2))
    groups = tuple(replace(group, in_flight=256) for group in plan.groups)
    return replace(plan, groups=groups)
