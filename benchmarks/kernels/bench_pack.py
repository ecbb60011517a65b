"""pack and unpack beside a copy of the same bytes, TRL's packing, and flash-attn's unpad."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.kernels.figure import Figure, seconds
from flowgraph.kernels import PackPlan, Ragged, pack, unpack

ROWS = 4096
PACK_LENGTH = 8192
DTYPES = {
    "input_ids": torch.int64, "position_ids": torch.int64, "labels": torch.int64,
    "weights": torch.float32, "logprobs": torch.float32, "advantages": torch.float32,
}  # fmt: skip
TRL_SCRIPT = Path(__file__).with_name("trl_pack.py")


def measure(device: torch.device) -> list[Figure]:
    """4096 rows of six fields: 8M tokens each, then 8M tokens in all; a feature matrix."""
    figures = []
    for label, tokens, within in (
        ("8M tokens a field", 8_000_000, 5.0),
        ("8M tokens in all", 8_000_000 // len(DTYPES), 20.0),
    ):
        figures += _packing(label, tokens, within if device.type == "cpu" else None, device)
    return [*figures, *_features(device), *_unpad(device)]


def lengths(tokens: int) -> NDArray[np.int64]:
    """4096 lognormal lengths that add up to about `tokens`, none above a pack."""
    raw = np.random.default_rng(0).lognormal(0, 0.5, ROWS)
    clipped: NDArray[np.int64] = np.clip(raw / raw.sum() * tokens, 1, PACK_LENGTH).astype(np.int64)
    return clipped


def plan(sizes: NDArray[np.int64]) -> PackPlan:
    """Longest first, a new pack when the next does not fit: which plan it is does not matter."""
    packs: list[list[int]] = [[]]
    room = PACK_LENGTH
    for sample in np.argsort(-sizes, kind="stable").tolist():
        if sizes[sample] > room:
            packs.append([])
            room = PACK_LENGTH
        packs[-1].append(sample)
        room -= int(sizes[sample])
    return PackPlan.of(packs, length=PACK_LENGTH)


def _packing(label: str, tokens: int, within: float | None, device: torch.device) -> list[Figure]:
    sizes = lengths(tokens)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
    rows = int(offsets[-1])
    fields = {
        name: Ragged(torch.ones(rows, dtype=dtype, device=device), offsets)
        for name, dtype in DTYPES.items()
    }
    decided = plan(sizes)
    packed = pack(fields, decided)

    def copy() -> list[torch.Tensor]:
        return [field.values.clone() for field in fields.values()]

    read = sum(field.values.nbytes for field in fields.values())
    written = sum(tensor.nbytes for tensor in packed.fields.values())
    written += packed.segment_ids.nbytes + packed.positions.nbytes
    copied = seconds(copy, device)
    figures = [
        Figure(
            name=f"pack, 4096 rows x 6 fields, {label}",
            nbytes=read + written,
            seconds=seconds(lambda: pack(fields, decided), device),
            beside="clone of every field",
            beside_seconds=copied,
            within=within,
        ),
        Figure(
            name=f"unpack, the same, {label}",
            nbytes=2 * read,
            seconds=seconds(
                lambda: [unpack(row, packed.layout) for row in packed.fields.values()], device
            ),
            beside="clone of every field",
            beside_seconds=copied,
        ),
    ]
    ours = figures[0].seconds
    theirs = _trl_seconds(tokens) if device.type == "cpu" else None
    if theirs is not None:
        figures.append(
            Figure(
                name=f"pack, {label}",
                nbytes=0,
                seconds=ours,
                beside="trl.pack_dataset (bfd) of the same rows",
                beside_seconds=theirs,
            )
        )
    return figures


def _features(device: torch.device) -> list[Figure]:
    """One bf16 feature matrix of 4096 columns, 128 MiB."""
    sizes = np.full(64, 256, dtype=np.int64)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
    rows = torch.ones(int(offsets[-1]), 4096, dtype=torch.bfloat16, device=device)
    decided = PackPlan.of([range(begin, begin + 8) for begin in range(0, 64, 8)])
    took = seconds(lambda: pack({"x": Ragged(rows, offsets)}, decided), device)
    return [
        Figure(
            name="pack, bf16 features [16384, 4096]",
            nbytes=2 * rows.nbytes,
            seconds=took,
            beside="clone",
            beside_seconds=seconds(rows.clone, device),
        )
    ]


def _unpad(device: torch.device) -> list[Figure]:
    """flash-attn's unpad_input, where it is installed: the nearest thing to unpack."""
    if device.type == "cpu" or importlib.util.find_spec("flash_attn") is None:
        return []
    unpad_input = importlib.import_module("flash_attn.bert_padding").unpad_input

    sizes = torch.full((64,), 200)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    rows = torch.ones(int(offsets[-1]), 4096, dtype=torch.bfloat16, device=device)
    decided = PackPlan.of([[sample] for sample in range(64)], length=256)
    packed = pack({"x": Ragged(rows, offsets)}, decided)
    mask = packed.segment_ids >= 0
    return [
        Figure(
            name="unpack [64, 256, 4096]",
            nbytes=2 * rows.nbytes,
            seconds=seconds(lambda: unpack(packed["x"], packed.layout), device),
            beside="flash_attn unpad_input",
            beside_seconds=seconds(lambda: unpad_input(packed["x"], mask), device),
        )
    ]


def _trl_seconds(tokens: int) -> float | None:
    """TRL's time for the same rows, from its own environment: $TRL_PYTHON, none where not set."""
    python = os.environ.get("TRL_PYTHON")
    if not python:
        return None
    request = json.dumps({"lengths": lengths(tokens).tolist(), "pack_length": PACK_LENGTH})
    done = subprocess.run(
        [python, str(TRL_SCRIPT)], input=request, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])
