"""What a plan may use: nodes, devices, links. Plain data, parsed from YAML by the command line."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """A device by datasheet or measurement.

    flops: FLOP/s by dtype name, as pairs; memory_bytes; bandwidth: bytes/s of its memory;
    slots: workers that may share one (1 but for CPUs).
    """

    name: str
    kind: str = "cpu"  # cpu, cuda, hip, npu
    flops: tuple[tuple[str, float], ...] = ()
    memory_bytes: int = 0
    bandwidth: float = 0.0
    slots: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine: `devices` of one kind and `cores`; intra: bytes/s between its devices."""

    name: str
    device: str
    devices: int
    cores: int
    memory_bytes: int
    intra: float = 0.0
    address: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """inter: bytes/s between nodes; trusted: bulk data may travel in the clear (law 7)."""

    name: str
    kinds: tuple[DeviceKind, ...]
    nodes: tuple[Node, ...]
    inter: float = 0.0
    trusted: bool = False

    def kind(self, name: str) -> DeviceKind:
        return next(kind for kind in self.kinds if kind.name == name)

    @property
    def total_devices(self) -> int:
        """Physical devices, whatever may share them."""
        return sum(node.devices for node in self.nodes)

    @property
    def total_slots(self) -> int:
        """How many one-device workers fit."""
        return sum(node.devices * self.kind(node.device).slots for node in self.nodes)
