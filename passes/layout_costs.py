"""Seconds and bytes of a part under a layout, on a kind of device.

Of one rank of dp x tp x pp x cp: it computes a 1/dp share of the step (in whole units), a 1/tp of
each layer, a 1/pp of the layers, a 1/cp of each sequence. What a layout costs beside:

- tp: two all-reduces of the activations a layer and pass, 2 (tp - 1) / tp of their bytes each
  (Shoeybi et al., arXiv 1909.08053).
- pp: the pipeline is full but for (pp - 1) of its micro-batches (Narayanan et al., 2104.04473).
- cp: keys and values of the other ranks, once forward and twice backward (ring attention).
- dp, cp: one all-reduce of the gradients an update.

Activations kept a token and layer, in elements: 5 width + (12 width + 2.5 heads * length) / tp
(Korthikanti et al., 2205.05198); with recompute the layer's input alone, and one layer whole.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flowgraph.ir.plan import Layout
from flowgraph.runtime.policy.roofline import Device, Shape
from flowgraph.runtime.policy.step_time import EngineTimes, update_seconds

INTRA_BANDWIDTH = 5e10
"""Bytes/s between devices of a node that does not say; PCIe 5 x16 has 6.3e10."""

INTER_BANDWIDTH = 1e10
"""Bytes/s between nodes of a cluster that does not say."""

HOP_SECONDS = 1e-5
"""Start of a collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a layout would run. intra, inter: bytes/s; node: devices of the largest node."""

    device: Device
    kind: str
    memory_bytes: int
    intra: float
    inter: float
    node: int

    def link(self, devices: int) -> float:
        """Bytes/s of the slowest link in a group of that many devices."""
        return self.intra if devices <= self.node else self.inter


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A model as far as splitting it goes. length: tokens of a sequence."""

    shape: Shape
    heads: int
    kv_heads: int
    head_width: int
    vocab: int
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GangWork:
    """A gang's step. tokens: in all; micro: tokens at once; units: least shares a rank can have.

    moments: optimizer state, in copies of the weights. reference: a frozen model beside it.
    token_s, item_s: seconds forward (and backward when trained) of a token, and of a micro-batch
    whatever is in it, on one device.
    """

    model: Described
    trained: bool
    tokens: float
    micro: float
    units: int
    updates: int
    moments: int
    token_s: float
    item_s: float
    reference: Shape | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWork:
    """An agent's step. concurrent: calls that can be open at once, over all instances."""

    model: Described
    calls: float
    prompt: float
    response: float
    slots: int
    concurrent: float
    max_length: int
    kv_bytes: int
    times: EngineTimes
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """seconds: of the whole step's demand. terms: bytes of one rank, by what holds them."""

    seconds: float
    terms: Mapping[str, int]

    @property
    def memory_bytes(self) -> int:
        return sum(self.terms.values())


def gang_estimate(work: GangWork, layout: Layout, place: Place, micro: float = 0.0) -> Estimate:
    """micro: tokens at once, the work's own when 0."""
    micro = micro or work.micro
    share = math.ceil(work.units / layout.dp) / work.units
    tokens = work.tokens * share
    batches = max(1.0, tokens / micro)
    times = split_times(work, layout, place, batches)
    seconds = tokens * times.token_s + batches * times.item_s
    if work.trained:
        update = update_seconds(work.model.shape, place.device)
        seconds += work.updates * update / (layout.tp * layout.pp)
        seconds += work.updates * gradients_s(work, layout, place)
    return Estimate(seconds, _gang_bytes(work, layout, micro, min(layout.pp, batches)))


@dataclass(frozen=True, slots=True)
class SplitTimes:
    """Seconds that a token, and a micro-batch whatever is in it, take the tp x pp x cp ranks that
    work on it together."""

    token_s: float
    item_s: float


def split_times(work: GangWork, layout: Layout, place: Place, batches: float) -> SplitTimes:
    """batches: that one rank has in a step, which its pipeline is filled with. Waiting for others'
    bytes is not hidden."""
    slower = (4 / 3 if layout.recompute else 1.0) * (1 + (layout.pp - 1) / batches)
    token, item = _traffic(work, layout, place)
    return SplitTimes(
        token + slower * work.token_s / (layout.tp * layout.pp * layout.cp),
        item + slower * work.item_s / layout.pp,
    )


def _traffic(work: GangWork, layout: Layout, place: Place) -> tuple[float, float]:
    """Seconds that a rank waits for others' bytes, of a token and of a micro-batch."""
    shape, layers = work.model.shape, work.model.shape.layers / layout.pp
    passes = (3 if layout.recompute else 2) if work.trained else 1
    width = shape.width * shape.bytes / layout.cp
    token = item = 0.0
    if layout.tp > 1:
        ring = 2 * (layout.tp - 1) / layout.tp * width / place.link(layout.tp)
        token += 2 * passes * layers * ring
        item += 2 * passes * layers * HOP_SECONDS
    if layout.cp > 1:
        kv = 2 * work.model.kv_heads * work.model.head_width * shape.bytes / layout.tp
        trips = 3 if work.trained else 1
        size = kv * (layout.cp - 1) / layout.cp
        token += trips * layers * size / place.link(layout.tp * layout.cp)
        item += trips * layers * HOP_SECONDS
    if layout.pp > 1:
        token += passes * width / place.link(layout.ranks)
        item += passes * HOP_SECONDS
    return token, item


def gradients_s(work: GangWork, layout: Layout, place: Place) -> float:
    """One all-reduce of the gradients, over the ranks that share the data."""
    shape, ways = work.model.shape, layout.dp * layout.cp
    if ways == 1:
        return 0.0
    size = shape.parameters * shape.bytes / (layout.tp * layout.pp)
    return 2 * (ways - 1) / ways * size / place.link(layout.ranks) + HOP_SECONDS


def _gang_bytes(work: GangWork, layout: Layout, micro: float, open_: float) -> dict[str, int]:
    """open_: micro-batches whose activations a pipeline stage holds at once."""
    shape = work.model.shape
    split = layout.tp * layout.pp
    weights = math.ceil(shape.parameters * shape.bytes / split)
    terms = {"weights": weights}
    if work.trained:
        terms["gradients"] = weights
        terms["optimizer"] = weights * work.moments
        terms["activations"] = _activations(work.model, layout, micro / layout.cp, open_)
    if work.reference is not None:
        held = work.reference
        terms["reference"] = math.ceil(held.parameters * held.bytes / split)
    return terms


def _activations(model: Described, layout: Layout, tokens: float, open_: float) -> int:
    width, size = model.shape.width, model.shape.bytes
    layer = 5 * width + (12 * width + 2.5 * model.heads * model.length) / layout.tp
    layers = model.shape.layers / layout.pp
    kept = width * layers * open_ + layer if layout.recompute else layer * layers * open_
    # Logits and their gradient are float32, and of one micro-batch.
    return math.ceil(tokens * (kept * size + 2 * 4 * model.vocab / layout.tp))


def engine_estimate(work: EngineWork, layout: Layout, instances: int, place: Place) -> Estimate:
    """Of `instances` engines, each over layout.tp devices, that share the agent's calls alike."""
    shape, tp = work.model.shape, layout.tp
    times = work.times
    calls = work.calls / instances
    rows = max(1.0, min(float(work.slots), work.concurrent / instances, calls))
    iterations = calls * work.response / rows
    read = times.read_s + times.row_read_s * rows
    iteration = times.iteration_s + max(read, times.row_s * rows) / tp
    seconds = iterations * iteration + times.prefill_token_s * calls * work.prompt / tp
    if tp > 1:
        trips = 2 * shape.layers
        moved = (iterations * rows + calls * work.prompt) * shape.width * shape.bytes
        seconds += trips * 2 * (tp - 1) / tp * moved / place.link(tp)
        seconds += trips * iterations * HOP_SECONDS
    terms = {
        "weights": math.ceil(shape.parameters * shape.bytes / tp),
        # Ranks beyond the heads of keys and values hold copies.
        "KV cache": math.ceil(
            work.slots * work.max_length * work.kv_bytes / min(tp, max(1, work.model.kv_heads))
        ),
    }
    return Estimate(seconds, terms)
