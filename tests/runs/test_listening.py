"""The same run over tcp with CURVE, while strangers knock: counted, and nothing changes."""

import json
import os
import re
import socket
from pathlib import Path

import pytest
import zmq

from flowgraph.ir.plan import Plan
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, RunResult, WorkerStarted
from flowgraph.runtime.supervise import run_plan
from flowgraph.runtime.transport.keys import KeyPair
from tests.runs.running import GRAPHS, plan_of, run


class Stranger:
    """Knocks as soon as the first worker is in: garbage, ZeroMQ without keys, a key of its own."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket | zmq.Socket[bytes]] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.knocked = False

    def __call__(self, progress: Progress) -> None:
        if not isinstance(progress, WorkerStarted) or self.knocked:
            return
        self.knocked = True
        port = listening_port()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n" * 50, bytes(range(256)) * 100):
            raw = socket.create_connection(("127.0.0.1", port))
            raw.sendall(garbage)
            self._sockets.append(raw)
        for own in (None, KeyPair.new()):
            dealer = self._context.socket(zmq.DEALER)
            dealer.setsockopt(zmq.LINGER, 0)
            self._sockets.append(dealer)
            dealer.setsockopt(zmq.IDENTITY, b"host-0")
            if own is not None:
                dealer.setsockopt(zmq.CURVE_SERVERKEY, KeyPair.new().public)
                dealer.setsockopt(zmq.CURVE_PUBLICKEY, own.public)
                dealer.setsockopt(zmq.CURVE_SECRETKEY, own.secret)
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send(b"\xdd\xff\xff\xff\xff")

    def close(self) -> None:
        for knocking in self._sockets:
            knocking.close()
        self._context.term()


def listening_port() -> int:
    """The one tcp port on which this process listens."""
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if found := re.fullmatch(r"socket:\[(\d+)\]", target):
            inodes.add(found[1])
    for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        columns = row.split()
        if columns[3] == "0A" and columns[9] in inodes:
            return int(columns[1].rpartition(":")[2], 16)
    raise AssertionError("nobody listens")


def run_over_tcp(plan: Plan, folder: Path, stranger: Stranger) -> RunResult:
    options = RunOptions(run_dir=str(folder), exact=True, restarts=0, listen="tcp")
    return run_plan(plan, options, stranger)


@pytest.mark.slow
def test_over_tcp_with_strangers_at_the_door_a_run_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    plan = plan_of(GRAPHS / "letters.py")
    stranger = Stranger()
    try:
        over_tcp = run_over_tcp(plan, tmp_path / "tcp", stranger)
    finally:
        stranger.close()
    assert stranger.knocked
    refused = json.loads((tmp_path / "tcp" / "outcome.json").read_text())["refused"]
    assert refused["by_reason"]["no handshake"] >= 3  # each of the last two retries
    assert set(refused["by_reason"]) <= {"no handshake", "unknown key"}
    over_ipc = run(plan, tmp_path / "ipc", exact=True)
    assert over_tcp.weights_digest == over_ipc.weights_digest
    assert json.loads((tmp_path / "ipc" / "outcome.json").read_text())["refused"]["total"] == 0
