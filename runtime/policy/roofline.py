"""Time and memory of a described model on a described device (Williams et al. 2009, roofline).

FLOPs of a token forward: 2 a parameter, and 2 * 2 * width * length a layer for attention over
`length` tokens, half of it where attention is causal. Over segments of several lengths the sum of
their squares counts, so that `length` is their mean square over their mean (`attended`). Backward
takes twice the forward. Activations kept for backward:
about 17 * width + 2.5 * heads * length elements a token and layer (Korthikanti et al.,
arXiv 2205.05198, in elements), and the logits.

The constants stand in where neither the graph, the cluster nor a measurement says anything. None
changes a result: they only weigh one plan against another.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flowgraph.ir.cluster import Cluster, DeviceKind
from flowgraph.ir.graph import Module

SAMPLE_TOKENS = 64  # tokens of a record whose length is not declared
CPU_FLOPS = 7e10  # fp32 matmul, one core: 70-90 GFLOP/s measured on Zen 3
DEVICE_FLOPS = 1e14  # an accelerator of no stated speed
CPU_BANDWIDTH = 1e10  # bytes/s, one core
DEVICE_BANDWIDTH = 1e12
EFFICIENCY = 0.4  # share of the peak that training reaches
KERNEL_SECONDS = 5e-6  # launch of one operation of torch's
KERNELS_A_LAYER = 20
GENERIC_PARAMETERS = 1_000_000  # of a module without a description

BOTH_WAYS = ("vit", "encoder")
"""Kinds of models whose tokens attend to those behind them too."""

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model as far as its cost goes. bytes: of one parameter. activation_bytes: a token.

    causal: whether a token attends only to those before it, as in a decoder.
    """

    parameters: int
    layers: int
    width: int
    bytes: int
    dtype: str
    activation_bytes: float
    causal: bool = True

    def flops_a_token(self, length: float) -> float:
        """Of a forward over one token of a sequence of `length`."""
        seen = length / 2 if self.causal else length
        return 2.0 * self.parameters + 4.0 * self.layers * self.width * seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """flops: peak by dtype; bandwidth: bytes/s of its memory."""

    flops: Mapping[str, float]
    bandwidth: float

    def peak(self, shape: Shape) -> float:
        """FLOP/s in the model's dtype."""
        return self.flops.get(shape.dtype, min(self.flops.values()))

    def compute(self, shape: Shape, *, tokens: float, length: float, passes: int) -> float:
        """Seconds for `tokens` in sequences of `length`; passes: 1 forward, 3 with backward."""
        flops = passes * tokens * shape.flops_a_token(length)
        return flops / (self.peak(shape) * EFFICIENCY)

    def launches(self, shape: Shape) -> float:
        """Seconds that one pass over the layers takes whatever its size."""
        return shape.layers * KERNELS_A_LAYER * KERNEL_SECONDS


def device_of(cluster: Cluster) -> Device:
    """The device that estimates are made for: the first accelerator, else the first kind."""
    kinds = [cluster.kind(node.device) for node in cluster.nodes]
    return device_of_kind(next((kind for kind in kinds if kind.kind != "cpu"), kinds[0]))


def device_of_kind(kind: DeviceKind) -> Device:
    """A device as its cluster file describes it; what that does not say is assumed."""
    cpu = kind.kind == "cpu"
    peak = CPU_FLOPS if cpu else DEVICE_FLOPS
    return Device(
        flops={**dict.fromkeys(("float32", "bfloat16", "float16"), peak), **dict(kind.flops)},
        bandwidth=kind.bandwidth or (CPU_BANDWIDTH if cpu else DEVICE_BANDWIDTH),
    )


def shape_of(module: Module) -> Shape:
    """From the module's description; what it does not say is assumed."""
    said = module.description
    layers, width = int(said.get("layers") or 1), int(said.get("width") or 64)
    size = BYTES.get(module.dtype, 4)
    elements = layers * (17 * width + 2.5 * int(said.get("heads") or 1) * SAMPLE_TOKENS)
    return Shape(
        parameters=int(said.get("parameters") or GENERIC_PARAMETERS),
        layers=layers,
        width=width,
        bytes=size,
        dtype=module.dtype,
        activation_bytes=elements * size + 4 * int(said.get("vocab") or 0),
        causal=said.get("kind") not in BOTH_WAYS,
    )


def attended(mean: float, deviation: float) -> float:
    """Tokens that a token's attention spans, of segments with that mean and standard deviation:
    the sum of squared lengths over the sum of lengths.

    >>> attended(3.0, 1.0) == (2**2 + 4**2) / (2 + 4)
    True
    """
    return mean + deviation**2 / mean if mean > 0 else mean


def kv_bytes(module: Module) -> int:
    """Bytes of the keys and values of one token; 0 for models without a described cache."""
    said = module.description
    heads = int(said.get("kv_heads") or said.get("heads") or 0)
    width = int(said.get("head_width") or int(said.get("width") or 0) // max(1, heads))
    return 2 * int(said.get("layers") or 0) * heads * width * BYTES.get(module.dtype, 4)
