"""Messages: all of them there and back, and whatever else comes is refused by one named error."""

import random
import tracemalloc
from dataclasses import fields
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.runtime import messages
from flowgraph.runtime.messages import FROM_WORKERS, MESSAGES, VERSION, Message, decode, encode
from flowgraph.runtime.transport import wire
from flowgraph.runtime.wire_types import BadMessage

LAYOUT = (2, (("x", "int64", (0, 2)), ("tokens", "int64", (64, 5), (128, 3))))
HANDLE = ("host-0", 12, 3, 64, 168, 1 << 40, 2, LAYOUT)
CALL = (7, b"k" * 16, b"\x01" * 16, 8, 1.0, (1, 2), ())
COMPLETION = (7, b"\x01" * 8, b"\x00" * 4, b"\x00" * 4)


def example(name: str) -> Message:
    """A message with something in every field."""
    known: dict[str, Any] = {
        "worker": "host-0",
        "pid": 12,
        "samples": ((1, 2), (3,)),
        "inputs": {"lines": ((HANDLE,), (HANDLE, HANDLE))},
        "units": (0, 1),
        "weights": (1.0, 2.0),
        "metrics": {"loss": (1.5, 2)},
        "kept": (1, 3),
        "dropped": ((2, "too long"),),
        "gradients": (HANDLE,),
        "calls": (CALL,),
        "completions": (COMPLETION,),
        "owners": ((0, 1), (1, 0)),
        "publish": True,
        "lost_peer": False,
        "training": True,
        "blocks": ((64, 1 << 40),),
        "held": (("host-0", 64, 1 << 40),),
        "items": (3, 4),
        "porters": ("porter:right",),
        "sample": None,
        "sizes": {"lines": (3, 4)},
        "outputs": {"lines": (HANDLE,)},
        "divisor": 8.0,
        "busy_s": 0.25,
    }
    special: dict[tuple[str, str], Any] = {
        ("Ready", "sizes"): {"0": 8},
        ("Run", "outputs"): ("lines",),
        ("Updated", "weights"): HANDLE,
        ("Updated", "metrics"): {"lr": 0.1},
        ("Load", "weights"): HANDLE,
        ("Released", "blocks"): (("host-0", 64, 1 << 40),),
        ("Released", "asked"): True,
    }
    cls = MESSAGES[name]
    values = {}
    for field in fields(cls):
        plain = {"str": "x", "int": 3, int: 3, str: "x"}.get(field.type, "x")
        values[field.name] = special.get((name, field.name), known.get(field.name, plain))
    message: Message = cls(**values)
    return message


@pytest.mark.parametrize("name", list(MESSAGES))
def test_every_message_comes_back_as_it_was(name: str) -> None:
    message = example(name)
    assert decode(encode(message)) == message


def test_who_names_itself_is_a_worker() -> None:
    assert {cls.__name__ for cls in FROM_WORKERS} >= {"Ready", "Done", "Failed", "Stopped"}
    assert not {"Run", "Stop", "Free", "Update"} & {cls.__name__ for cls in FROM_WORKERS}


def packed(*parts: Any) -> bytes:
    data: bytes = msgpack.packb(parts)
    return data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (packed(VERSION, "Stop", "")[:-2], "not msgpack"),
        (packed(VERSION, "Stop", "") + b"\x00", "not msgpack"),
        (packed(VERSION + 1, "Stop", ""), "version 2"),
        (packed(True, "Stop", ""), r"not \[version"),
        (packed(VERSION, "Sit", ""), "unknown type 'Sit'"),
        (packed(VERSION, ["Stop"], ""), "unknown type tuple"),
        (packed(VERSION, "Stop"), "a Stop of 0 fields, not 1"),
        (packed(VERSION, "Stop", 1), "Stop whose 'checkpoint'"),
        (packed(VERSION, "Free", [[64]]), "Free whose 'blocks'"),
        (packed(VERSION, "Free", [[64, 1 << 63]]), "Free whose 'blocks'"),
        (packed(VERSION, "Released", "w", [[64, 1]], True, 0), "Released whose 'blocks'"),
        (packed(VERSION, "Released", "w", [], 1, 0), "Released whose 'asked'"),
        (packed(VERSION, "BackwardDone", "w", 1, 0.5, [["w", 64]], 0), "BackwardDone whose 'held'"),
        (packed(VERSION, "Loaded", "w", True, 0.5, 0), "Loaded whose 'version'"),
        (packed(VERSION, "Load", 1, (*HANDLE[:7], (2, (("x", "int64", (-1,)),))), ""), "'weights'"),
        (msgpack.packb({"a": 1}), r"not \[version"),
        (b"\x81\x90\x00", "not msgpack"),
        (b"\x91" * 3000 + b"\xc0", "message"),
    ],
)
def test_a_bad_message_is_refused_by_name(data: bytes, says: str) -> None:
    with pytest.raises(BadMessage, match=says):
        decode(data)


def test_a_message_that_is_too_long_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_BYTES", 100)
    with pytest.raises(BadMessage, match="101 bytes; at most 100"):
        decode(bytes(101))


@pytest.mark.parametrize(
    "header", [b"\xdc\x70\x00", b"\xdd\x00\x00\x70\x00", b"\xdf\x00\x00\x70\x00"]
)
def test_lengths_that_lie_cost_no_memory(header: bytes) -> None:
    """Nested headers that each claim 28,672 elements: msgpack alone would take 100 MB and more."""
    data = b"\x93\x01\xa4Free" + header * 900 + b"\xc0" * 28_000
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_long_honest_message_passes_the_walk() -> None:
    """Random bytes look like length headers to the cheap test; then every header is read."""
    noise = random.Random(0).randbytes(200_000)
    message = messages.Answers(completions=((1, noise, b"", b""),))
    assert decode(encode(message)) == message


trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | trees.map(msgpack.packb))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (decode, wire.decode):
        try:
            read(data)
        except BadMessage:
            continue


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(name for name in MESSAGES if fields(MESSAGES[name]))), st.data())
def test_a_field_of_another_type_is_refused_or_equal(name: str, data: st.DataObject) -> None:
    """Whatever is put into a field, what comes out is what went in, or nothing does."""
    parts = msgpack.unpackb(encode(example(name)), use_list=False)
    at = data.draw(st.integers(2, len(parts) - 1))
    value = data.draw(trees)
    try:
        found = decode(packed(*parts[:at], value, *parts[at + 1 :]))
    except BadMessage:
        return
    assert encode(found) == packed(*parts[:at], value, *parts[at + 1 :])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(MESSAGES)), st.integers(0), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_another_message(name: str, at: int, byte: int) -> None:
    data = bytearray(encode(example(name)))
    data[at % len(data)] = byte
    try:
        assert type(decode(bytes(data))).__name__ in MESSAGES
    except BadMessage:
        return


@pytest.mark.parametrize(
    "message",
    [
        wire.Open(fetch=1, attempt=2, block=HANDLE, start=3, upto=9),
        wire.Opened(fetch=1, attempt=2, chunk_bytes=5, digests=b"d" * 16, bulk="", token=b"t"),
        wire.Refused(fetch=1, why="freed"),
        wire.Chunk(fetch=1, attempt=2, index=1 << 40),
        wire.Credit(fetch=1, attempt=2, received=3, upto=9),
        wire.Close(fetch=1),
    ],
)
def test_every_fetch_message_comes_back_as_it_was(message: wire.FetchMessage) -> None:
    assert wire.decode(wire.encode(message)) == message


def test_a_fetch_message_with_a_negative_number_is_refused() -> None:
    with pytest.raises(BadMessage, match="'index'"):
        wire.decode(wire.encode(wire.Chunk(fetch=1, attempt=1, index=-1)))
