"""Seeded mixes of sample lengths. They imitate shapes of vision-language sets, nobody's data.

Costs are FLOP of a forward pass: an 8B decoder (36 layers of width 4096, causal attention) and a
0.6B vision tower (32 layers of width 1280, full attention inside an image, 4 patches to a visual
token).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowgraph.runtime.policy import Cost

CAP = 8192  # tokens a pack may hold
NAMES = ("short", "ecom", "infovqa")
PIXELS_PER_VISUAL_TOKEN = 784

BACKBONE = Cost(linear=2 * 8e9, quadratic=2 * 36 * 4096)
PATCHES = 4
ENCODER = Cost(linear=PATCHES * 2 * 0.6e9, quadratic=PATCHES**2 * 4 * 32 * 1280)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Samples that fit the cap, in arrival order."""

    lengths: Ints  # [n] tokens, text and visual
    visual: Ints  # [n] visual tokens
    encoder: NDArray[np.float64]  # [n] the vision tower's cost of the sample
    dropped: int  # over-long samples drawn along the way


def draw(name: str, count: int, seed: int) -> Mix:
    """`count` samples of the mix that fit CAP; over-long ones are dropped and counted."""
    random = np.random.default_rng(seed)
    images, text = _samples(name, count + count // 8 + 64, random)  # over-long: up to 5 %
    visual = images.sum(axis=1)
    total = visual + np.maximum(1, np.rint(text)).astype(np.int64)
    kept = np.flatnonzero(total <= CAP)[:count]
    if kept.size < count:
        raise RuntimeError(f"{name}: {count - kept.size} samples short; draw more")
    encoder = np.where(images > 0, ENCODER.of(images), 0.0).sum(axis=1)
    return Mix(
        lengths=total[kept],
        visual=visual[kept],
        encoder=encoder[kept],
        dropped=int(kept[-1]) + 1 - count,
    )


def _samples(
    name: str, count: int, random: np.random.Generator
) -> tuple[Ints, NDArray[np.float64]]:
    """Visual tokens of each image, int64[count, images], 0 for none; and text lengths."""
    if name == "short":
        images = random.choice([0, 576, 729, 1176], (count, 1), p=[0.2, 0.4, 0.25, 0.15])
        return images.astype(np.int64), random.lognormal(5.3, 0.9, count)
    if name == "ecom":
        number = random.choice(5, count, p=[0.15, 0.55, 0.15, 0.1, 0.05])
        sizes = random.choice([391, 520, 1196, 1600, 2691], (count, 4))
        shown = np.arange(4) < number[:, None]
        return (sizes * shown).astype(np.int64), random.lognormal(5.0, 1.1, count)
    if name == "infovqa":
        pixels = np.clip(random.lognormal(np.log(1.6e6), 0.9, count), 0.2e6, 5.6e6)
        images = pixels.astype(np.int64) // PIXELS_PER_VISUAL_TOKEN
        return images[:, None], random.lognormal(4.2, 0.7, count)
    raise ValueError(f"mix: expects one of {', '.join(NAMES)}, got {name!r}")
