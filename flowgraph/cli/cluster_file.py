"""Cluster files: YAML that says which devices there are, read into a Cluster.

    name: two-nodes
    kinds:
      h100: {kind: cuda, memory: 80 GiB, bandwidth: 3.35 TB/s, flops: {bfloat16: 989 TFLOP/s}}
    nodes:
      - {name: "n{index}", count: 2, device: h100, devices: 8, cores: 96, memory: 1 TiB,
         intra: 450 GB/s}
    inter: 50 GB/s

A node with `count` stands for that many, `{index}` in its name and address counting from 0.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from flowgraph.cli.quantities import EXAMPLES, amount
from flowgraph.cli.yaml_reader import Located, read_yaml
from flowgraph.ir.cluster import Cluster, DeviceKind, Node

DEVICE_KINDS = ("cpu", "cuda", "hip", "npu")
DTYPES = ("float64", "float32", "bfloat16", "float16")
INDEX = "{index}"
MOST_NODES = 1 << 16
"""Nodes that an entry may stand for: told before as many are made."""


def load_cluster(file: Path) -> Cluster:
    """The cluster that a file describes.

    Raises ConfigurationError at the file's line for an unknown key (the nearest one is named), a
    value that is no such amount, and a device that is not declared.
    """
    document = read_yaml(file, "cluster file")
    fields = document.fields(required=("kinds", "nodes"), optional=("name", "inter", "trusted"))
    declared = fields["kinds"].entries()
    if not declared:
        raise fields["kinds"].refuse("expects a kind of device, got none")
    kinds = tuple(_kind(name, found) for name, found in declared.items())
    nodes = [node for found in fields["nodes"].items() for node in _nodes(found, declared)]
    if not nodes:
        raise fields["nodes"].refuse("expects a node, got none")
    _check_names(fields["nodes"], nodes)
    return Cluster(
        name=fields["name"].text() if "name" in fields else file.stem,
        kinds=kinds,
        nodes=tuple(nodes),
        inter=_amount(fields, "inter", "B/s"),
        trusted=fields["trusted"].flag() if "trusted" in fields else False,
    )


def _kind(name: str, found: Located) -> DeviceKind:
    fields = found.fields(required=("kind",), optional=("flops", "memory", "bandwidth", "slots"))
    kind = fields["kind"].text()
    if kind not in DEVICE_KINDS:
        raise fields["kind"].refuse(f"expects one of {', '.join(DEVICE_KINDS)}, got {kind!r}")
    flops: dict[str, Located] = {}
    if "flops" in fields:
        flops = fields["flops"].fields(required=(), optional=DTYPES)
    return DeviceKind(
        name=name,
        kind=kind,
        flops=tuple((dtype, _amount(flops, dtype, "FLOP/s")) for dtype in flops),
        memory_bytes=int(_amount(fields, "memory", "B")),
        bandwidth=_amount(fields, "bandwidth", "B/s"),
        slots=fields["slots"].count() if "slots" in fields else 1,
    )


def _nodes(found: Located, kinds: dict[str, Located]) -> list[Node]:
    fields = found.fields(
        required=("name", "device", "devices", "cores", "memory"),
        optional=("count", "intra", "address"),
    )
    device = fields["device"].text()
    if device not in kinds:
        raise fields["device"].refuse(
            f"no kind of device '{device}' is declared", hint=f"one of {', '.join(kinds)}"
        )
    count = fields["count"].count() if "count" in fields else 1
    if count > MOST_NODES:
        raise fields["count"].refuse(
            f"expects {MOST_NODES:,} at most, got {count:,}", hint=f"count: {MOST_NODES}"
        )
    return [
        Node(
            name=_numbered(fields, "name", i, count),
            device=device,
            devices=fields["devices"].count(),
            cores=fields["cores"].count(),
            memory_bytes=int(_amount(fields, "memory", "B")),
            intra=_amount(fields, "intra", "B/s"),
            **({"address": _numbered(fields, "address", i, count)} if "address" in fields else {}),
        )
        for i in range(count)
    ]


def _numbered(fields: dict[str, Located], name: str, index: int, count: int) -> str:
    text = fields[name].text()
    if count > 1 and INDEX not in text:
        raise fields[name].refuse(
            f"stands for {count} nodes, but '{text}' is the same for all",
            hint=f'{name}: "{text}-{INDEX}"',
        )
    return text.replace(INDEX, str(index))


def _check_names(nodes: Located, made: list[Node]) -> None:
    counts = Counter(node.name for node in made)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise nodes.refuse(f"two nodes are named '{twice}'")


def _amount(fields: dict[str, Located], name: str, unit: str) -> float:
    if name not in fields:
        return 0.0
    value: Any = fields[name].value()
    try:
        return amount(value, unit)
    except ValueError:
        raise fields[name].refuse(
            f"expects an amount in {unit}, got {value!r}", hint=f"{name}: {EXAMPLES[unit]}"
        ) from None
