"""The process of a node that sends the node's blocks to other nodes.

One a node, apart from the workers: what a worker wrote can be had while it computes, and after it
was lost, for as long as its memory is kept. A porter knows nothing that its successor must know:
when it is lost, another one at the same address goes on with every fetch at its next chunk.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flowgraph.runtime.pool import Reader
from flowgraph.runtime.transport.blocks import PoolBlocks
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.server import BlockServer

PREFIX = "porter:"
"""A porter's name is this and its node's: no worker is called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PorterSpec:
    """name: `porter:<node>`. listen: where it can be had; a port of `*` is chosen once.

    keys: its key file. trusted: records may travel in the clear. log: for its standard output.
    """

    name: str
    listen: str
    keys: str
    trusted: bool
    log: str

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "PorterSpec":
        return cls(**plain)


IDLE_S = 1.0
"""After so long without a fetch a porter lets go of the memory that it has mapped."""


def porter_of(node: str) -> str:
    return f"{PREFIX}{node}"


def serve_node(spec: PorterSpec, told: int) -> None:
    """Serve until killed. told: a pipe for one JSON line, the endpoint or why there is none."""
    try:
        ring = Keyring.read(Path(spec.keys))
        blocks = PoolBlocks(Reader())
        server = BlockServer(blocks, spec.listen, ring, trusted=spec.trusted)
    except Exception as error:
        os.write(told, json.dumps({"error": str(error)}).encode())
        raise
    os.write(told, json.dumps({"endpoint": server.endpoint}).encode())
    os.close(told)
    busy = time.monotonic()
    while True:
        server.turn(int(IDLE_S * 1000))
        now = time.monotonic()
        if server.fetches:
            busy = now
        elif now - busy >= IDLE_S:
            blocks.let_go()
            busy = now
