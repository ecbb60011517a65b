"""Models that do not describe themselves are counted without being made."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import flowgraph as fg
from flowgraph.ir.cluster import Cluster
from flowgraph.passes import compile_graph
from flowgraph.profile.meta import count, count_models
from tests.passes.graphs import laptop

UNTOLD = """
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import nn

import flowgraph as fg


@dataclass(frozen=True, slots=True)
class Line:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def untold(width: int) -> nn.Module:
    layers = [nn.Linear(width, width, bias=False) for _ in range(3)]
    return nn.Sequential(nn.Embedding(50_000, width), *layers, nn.Linear(width, 10))


def build() -> fg.Graph:
    g = fg.Graph("untold", steps=2)
    lm = g.module("lm", fg.model(untold, width=20_000))
    g.source("lines", lines).train(
        lm, loss=fg.token_cross_entropy(), batch=8, optimizer=fg.adamw(1e-3)
    )
    return g


def lines() -> Sequence[Line]:
    return []
"""


def test_a_model_larger_than_memory_is_counted_and_planned(tmp_path: Path) -> None:
    file = tmp_path / "untold.py"
    file.write_text(UNTOLD)
    graph = fg.load_graph(str(file), {})
    found = count_models(graph)
    counted = {name: one["value"] for name, one in found.items()}
    size = 50_000 * 20_000 + 3 * 20_000**2 + 20_000 * 10 + 10
    assert counted == {
        "lm.parameters": size,
        "lm.layers": 4,
        "lm.width": 20_000,
        "lm.vocab": 50_000,
    }
    assert compile_graph(graph, laptop()).prediction.memory_bytes["lm.gang"] < 1 << 30
    plan = compile_graph(graph, _large(), costs={"values": found})
    assert plan.prediction.memory_bytes["lm.gang"] > 16 * size


def test_weights_that_are_shared_count_once_and_nothing_is_counted_of_nothing() -> None:
    with torch.device("meta"):
        one = nn.Linear(8, 8)
        tied = nn.Sequential(one, one)
    assert count(tied) == {"parameters": 72.0, "layers": 2.0, "width": 8.0, "vocab": 0.0}
    assert count(nn.Identity()) == {"parameters": 0.0, "layers": 0.0, "width": 0.0, "vocab": 0.0}


def _large() -> Cluster:
    cluster = laptop()
    return replace(cluster, nodes=(replace(cluster.nodes[0], memory_bytes=1 << 44),))
