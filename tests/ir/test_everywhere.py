"""Forms depend on what they say only: on no process, and on no order of making."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.binary import MAGIC, SCHEMA, decode, encode, plan_hash
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.text import print_text
from flowgraph.passes import compile_graph
from tests.passes.graphs import laptop, marl

ROOT = Path(__file__).parents[2]

COMPILED = """
import hashlib
from flowgraph.ir.binary import encode
from flowgraph.ir.text import print_text
from flowgraph.passes import compile_graph
from flowgraph.passes.explain import explain
from tests.passes.graphs import gpus, laptop, marl, vlm

for graph in (marl(), vlm()):
    for cluster in (laptop(), gpus(2)):
        plan = compile_graph(graph, cluster)
        print(print_text(plan), explain(plan), hashlib.sha256(encode(plan)).hexdigest())
"""

GENERATED = """
import hashlib
from hypothesis import given, settings
from flowgraph.ir.binary import encode, plan_hash
from flowgraph.ir.text import print_text
from tests.ir.strategies import clusters, graphs, plans

found = hashlib.sha256()

@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(graphs, plans, clusters)
def look(graph, plan, cluster):
    for value in (graph, plan, cluster):
        found.update(print_text(value).encode("utf-8", "surrogatepass"))
    found.update(encode(plan))
    found.update(plan_hash(plan).encode())

look()
print("generated", found.hexdigest())
"""


@pytest.mark.parametrize(
    ("code", "word"),
    [(COMPILED, "train-solver"), (GENERATED, "generated")],
    ids=["compiled", "any"],
)
def test_forms_do_not_depend_on_the_process_or_its_hash_seed(code: str, word: str) -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    assert word in outputs.pop()


def test_the_order_in_which_a_map_was_filled_does_not_show() -> None:
    one, other = (
        replace(marl(), settings=dict(items), pins=dict(items))
        for items in ((("a", 1), ("b", 2)), (("b", 2), ("a", 1)))
    )
    assert print_text(one) == print_text(other)
    plans = [compile_graph(replace(g, pins={}), laptop()) for g in (one, other)]
    assert encode(plans[0]) == encode(plans[1])
    assert plan_hash(plans[0]) == plan_hash(plans[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16 - 1).filter(lambda version: version != SCHEMA), st.binary(max_size=64))
def test_any_other_version_is_refused_by_its_name(version: int, rest: bytes) -> None:
    data = MAGIC + version.to_bytes(2, "little") + bytes(32) + rest
    with pytest.raises(ConfigurationError) as caught:
        decode(data, "old.fgplan")
    said = f"old.fgplan has plan schema {version}; this version of flowgraph reads schema {SCHEMA}"
    assert caught.value.what == said
