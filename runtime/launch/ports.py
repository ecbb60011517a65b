"""What workers are told of other nodes: where their blocks can be had, and with which keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flowgraph.ir.plan import Plan
from flowgraph.runtime.launch.local import LocalLauncher
from flowgraph.runtime.nodes import listening, nodes_of
from flowgraph.runtime.transport.keys import new_keyrings
from flowgraph.runtime.transport.porter import PorterSpec, porter_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """nodes: of each worker. porters: endpoint by node; none when all workers share one.

    keys: folder of the key files.
    """

    nodes: Mapping[str, str]
    porters: Mapping[str, str]
    keys: Path

    def key_file(self, worker: str) -> str:
        """Empty when there is nobody to show it to."""
        return str(self.keys / f"{worker}.key") if self.porters else ""


def open_ports(
    plan: Plan, scratch: str, launcher: LocalLauncher, log: Callable[[str], str]
) -> Ports:
    """Start a porter on every node that has workers, if there is more than one such node.

    Keys are made for this attempt and are gone with `scratch`. log: file for a process's output.
    Raises RunFailed when a node's address cannot be listened at.
    """
    nodes, listen = nodes_of(plan), listening(plan)
    keys = Path(scratch) / "porters"
    if not listen:
        return Ports(nodes=nodes, porters={}, keys=keys)
    keys.mkdir(mode=0o700)
    rings = new_keyrings([*map(porter_of, listen), *nodes])
    files = {name: str(ring.write(keys)) for name, ring in rings.items()}
    specs = [
        PorterSpec(
            name=porter_of(node),
            listen=endpoint,
            keys=files[porter_of(node)],
            trusted=plan.cluster.trusted,
            log=log(porter_of(node)),
        )
        for node, endpoint in listen.items()
    ]
    found = launcher.serve(specs)
    porters = {node: found[porter_of(node)] for node in listen}
    return Ports(nodes=nodes, porters=porters, keys=keys)
