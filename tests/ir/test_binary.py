"""The binary plan: what is refused, by which words, and what a plan's identity depends on."""

import hashlib
import random
from dataclasses import replace

import msgpack
import pytest

from flowgraph.ir.binary import MAGIC, SCHEMA, decode, encode, plan_hash
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.location import Location
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from tests.passes.graphs import laptop, marl


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_graph(marl(), laptop())


def packed(body: bytes) -> bytes:
    """A file with a right header around any body."""
    return MAGIC + SCHEMA.to_bytes(2, "little") + hashlib.sha256(body).digest() + body


def test_a_plan_survives_writing_and_reading(plan: Plan) -> None:
    assert decode(encode(plan)) == plan


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "run.fgplan is empty"),
        (b"\x89PNG\r\n\x1a\n" + b"0" * 99, "run.fgplan is not a plan"),
        (MAGIC[:4], "run.fgplan is cut off"),
        (MAGIC + b"\x01\x00abc", "run.fgplan is cut off"),
        (
            MAGIC + (7).to_bytes(2, "little") + bytes(99),
            "has plan schema 7; this version of flowgr",
        ),
        (MAGIC + SCHEMA.to_bytes(2, "little") + bytes(99), "is damaged: its content does not have"),
        (packed(b"\xc1"), "is not a legal plan: its content is not msgpack"),
        (packed(msgpack.packb([1])), "is not a legal plan: expects a Plan, got (1,)"),
        (
            packed(msgpack.packb({"graph": {"name": "a"}})),
            "is not a legal plan: Plan lacks 'cluster'",
        ),
        (packed(msgpack.packb({"grph": {}})), "grph: Plan has no 'grph'; nearest: 'graph'"),
        (
            packed(msgpack.packb({"graph": {"name": 3}, "cluster": {}, "schedule": {}})),
            "graph.name: expects str, got 3",
        ),
        (packed(b"\x91" * 5000), "is not a legal plan: its content is not msgpack"),
    ],
)
def test_what_is_not_a_plan_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        decode(data, "run.fgplan")
    assert message in caught.value.what
    assert caught.value.exit_code == 2


def test_any_changed_byte_is_noticed(plan: Plan) -> None:
    data = encode(plan)
    dice = random.Random(0)
    for _ in range(500):
        place = dice.randrange(len(data))
        changed = bytearray(data)
        changed[place] ^= 1 << dice.randrange(8)
        with pytest.raises(ConfigurationError):
            decode(bytes(changed))


def test_changed_content_with_a_right_digest_is_read_or_refused_never_a_crash(plan: Plan) -> None:
    body = encode(plan)[len(MAGIC) + 34 :]
    dice = random.Random(0)
    for _ in range(1500):
        place = dice.randrange(len(body))
        changed = bytearray(body)
        changed[place] = dice.randrange(256)
        try:
            decode(packed(bytes(changed)))
        except ConfigurationError:
            continue


def test_a_number_that_msgpack_cannot_hold_is_refused(plan: Plan) -> None:
    huge = replace(plan, graph=replace(plan.graph, seed=2**80))
    with pytest.raises(ConfigurationError, match="the plan cannot be written"):
        encode(huge)


def test_the_hash_is_of_what_a_plan_does(plan: Plan) -> None:
    moved = replace(plan.graph.stages[0], at=Location("/elsewhere/example.py", 99))
    elsewhere = replace(
        plan.graph,
        root="/other",
        cluster="/other/cluster.yaml",
        stages=(moved, *plan.graph.stages[1:]),
    )
    assert plan_hash(replace(plan, graph=elsewhere)) == plan_hash(plan)
    assert plan_hash(replace(plan, graph=replace(plan.graph, seed=1))) != plan_hash(plan)
    assert plan_hash(replace(plan, pool_bytes=1)) != plan_hash(plan)
    assert len(plan_hash(plan)) == 32
