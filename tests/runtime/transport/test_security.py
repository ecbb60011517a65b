"""Nobody is trusted by default: keys, their files, and who may speak to whom, as whom."""

import json
import socket as sockets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.messages import Loaded, Stop, encode
from flowgraph.runtime.transport.endpoint import is_loopback, listen_at
from flowgraph.runtime.transport.keys import KeyPair, Keyring, new_keyrings
from flowgraph.runtime.transport.refusals import MOST_SHOWN, Refusals
from flowgraph.runtime.transport.sockets import Context, make_socket, present_keys
from flowgraph.runtime.transport.switchboard import Switchboard
from flowgraph.runtime.worker.link import Link

WORD = Loaded(worker="host-0", version=3, busy_s=0.5)


@contextmanager
def switchboard(folder: Path, listen: str = "tcp") -> Iterator[Switchboard]:
    board = Switchboard(str(folder), ["host-0", "host-1"], Refusals(), listen)
    try:
        yield board
    finally:
        board.close()


@contextmanager
def linked(board: Switchboard, name: str) -> Iterator[Link]:
    link = Link(name, board.endpoint, board.key_file(name))
    try:
        yield link
    finally:
        link.close()


@contextmanager
def dealer(
    board: Switchboard, identity: bytes, own: KeyPair | None, server: bytes | None
) -> Iterator[zmq.Socket[bytes]]:
    context: Context = zmq.Context()
    made = make_socket(context, zmq.DEALER)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.IDENTITY, identity)
    if own is not None and server is not None:
        present_keys(made, own, server)
    made.connect(board.endpoint)
    try:
        yield made
    finally:
        made.close()
        context.term()


def answered(board: Switchboard, link: Link) -> bool:
    """Whether a worker still gets through."""
    link.send(WORD)
    return board.receive(5000) == ("host-0", WORD, encode(WORD))


def until_refused(board: Switchboard, reason: str, count: int = 1) -> None:
    for _ in range(100):
        if board.refused.of(reason) >= count:
            return
        assert board.receive(50) is None
    raise AssertionError(f"nobody was refused for '{reason}': {board.refused.to_plain()}")


@pytest.mark.parametrize("listen", ["", "tcp"])
def test_a_worker_is_heard_and_answered(listen: str, tmp_path: Path) -> None:
    with switchboard(tmp_path, listen) as board, linked(board, "host-0") as link:
        assert answered(board, link)
        board.send("host-0", encode(Stop(checkpoint="x")))
        assert link.receive(5000) == [Stop(checkpoint="x")]
        board.send("host-1", b"to nobody")  # not connected: dropped, not an error
        assert board.refused.total == 0


def test_key_files_are_for_their_user_only_and_secrets_are_not_shown(tmp_path: Path) -> None:
    with switchboard(tmp_path) as board:
        files = sorted(tmp_path.glob("*.key"))
        assert [file.name for file in files] == ["host-0.key", "host-1.key"]
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
        ring = Keyring.read(Path(board.key_file("host-0")))
        other = json.loads(Path(board.key_file("host-1")).read_text())
        assert ring.own.secret.decode() not in repr(ring)
        assert other["secret"] not in files[0].read_text()
    files[0].chmod(0o640)
    with pytest.raises(ConfigurationError, match="may be read by others"):
        Keyring.read(files[0])


def test_every_run_has_its_own_keys() -> None:
    first, second = (new_keyrings(["a", "b"]) for _ in range(2))
    keys = {ring.own.secret for rings in (first, second) for ring in rings.values()}
    assert len(keys) == 4


def test_a_damaged_key_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    path.write_text("{}")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"x\.key is not a key file"):
        Keyring.read(path)


def test_a_peer_with_a_key_of_another_run_is_refused_and_counted(tmp_path: Path) -> None:
    with switchboard(tmp_path) as board, linked(board, "host-0") as link:
        server = Keyring.read(Path(board.key_file("host-0"))).peers["orchestrator"]
        with dealer(board, b"host-1", KeyPair.new(), server) as stranger:
            stranger.send(encode(Loaded(worker="host-1", version=1, busy_s=0.0)))
            until_refused(board, "unknown key")
        assert answered(board, link)


def test_a_peer_without_curve_or_without_zeromq_is_refused_and_counted(tmp_path: Path) -> None:
    with switchboard(tmp_path) as board, linked(board, "host-0") as link:
        with dealer(board, b"host-1", None, None) as plain:
            plain.send(b"hello")
            until_refused(board, "no handshake")
        before = board.refused.of("no handshake")
        host, _, port = board.endpoint.removeprefix("tcp://").partition(":")
        with sockets.create_connection((host, int(port))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(range(256)) * 8)
            until_refused(board, "no handshake", before + 1)
        assert answered(board, link)


def test_a_worker_cannot_speak_as_another(tmp_path: Path) -> None:
    with switchboard(tmp_path) as board, linked(board, "host-0") as link:
        ring = Keyring.read(Path(board.key_file("host-0")))
        with dealer(board, b"host-1", ring.own, ring.peers["orchestrator"]) as thief:
            thief.send(encode(Loaded(worker="host-1", version=1, busy_s=0.0)))
            until_refused(board, "false identity")
        link.send(Loaded(worker="host-1", version=1, busy_s=0.0))
        until_refused(board, "bad message")
        assert answered(board, link)


@pytest.mark.parametrize("listen", ["", "tcp"])
@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\xc1"],
        [encode(WORD)[:-1]],
        [encode(WORD), b"more"],
        [encode(Stop(checkpoint=""))],
        [b"\xdd\xff\xff\xff\xff"],
    ],
)
def test_a_bad_message_is_counted_and_the_next_good_one_heard(
    listen: str, frames: list[bytes], tmp_path: Path
) -> None:
    with switchboard(tmp_path, listen) as board, linked(board, "host-0") as link:
        link._socket.send_multipart(frames)
        until_refused(board, "bad message")
        assert answered(board, link)


def test_over_ipc_too_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with (
        switchboard(tmp_path, "") as board,
        linked(board, "host-0") as link,
        dealer(board, b"\xff\xfe", None, None) as stranger,
    ):
        stranger.send(encode(WORD))
        until_refused(board, "unknown identity")
        assert answered(board, link)


def test_a_flood_of_refusals_takes_no_memory() -> None:
    refused = Refusals()
    for n in range(1000):
        refused.add("bad message", "x" * 10_000 + str(n))
    plain = refused.to_plain()
    assert plain["total"] == 1000
    assert len(plain["first"]) == MOST_SHOWN
    assert max(map(len, plain["first"])) < 300


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("", "ipc:///x/orchestrator"),
        ("tcp", "tcp://127.0.0.1:*"),
        ("tcp://10.1.2.3:5", "tcp://10.1.2.3:5"),
        ("tcp://10.1.2.3", "tcp://10.1.2.3:*"),
        ("tcp://[::1]:5", "tcp://[::1]:5"),
    ],
)
def test_a_run_listens_privately_unless_an_address_is_named(listen: str, endpoint: str) -> None:
    assert listen_at(listen, "/x", "orchestrator") == endpoint
    assert listen.startswith("tcp://10") or not endpoint.startswith("tcp") or is_loopback(endpoint)


@pytest.mark.parametrize(
    "listen", ["tcp://*:5", "tcp://myhost:5", "udp://1.2.3.4:5", "tcp://1.2.3.4:99999", "ipc:///x"]
)
def test_listening_anywhere_else_is_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot listen at"):
        listen_at(listen, "/x", "orchestrator")


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with (
        switchboard(tmp_path) as board,
        pytest.raises(ConfigurationError, match="Address already in use"),
        switchboard(tmp_path / "second", board.endpoint),
    ):
        pass


def test_a_run_uses_no_pickle_on_the_wire() -> None:
    """Neither the transports nor the messages import it, nor ask pyzmq for it."""
    runtime = Path(__file__).parents[3] / "runtime"
    files = [*(runtime / "transport").glob("*.py"), runtime / "messages.py", runtime / "pool.py"]
    for file in files:
        text = file.read_text()
        assert "pickle" not in text.replace("no pickle", ""), file
        assert "pyobj" not in text, file
