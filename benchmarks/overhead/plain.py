"""The same training as one plain torch loop: `python -m benchmarks.overhead.plain STEPS WARM`.

One process, one thread, no orchestrator: the example's questions, its two modules from the same
initial weights, rows packed to the same amount with attention isolated, the same loss, clipping,
optimizer and schedule. After WARM steps it waits for a line of input; then its CPU time counts.
Prints each step's loss and the CPU seconds of the steps that count.
"""

import json
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.overhead.wide import BATCH, wide_graph
from flowgraph.ir.graph import Graph
from flowgraph.runtime.functions import load
from flowgraph.runtime.policy import pack_cheapest
from flowgraph.runtime.trainer.build import build_module

CLIP, WARMUP, LAST, CAP = 1.0, 20, 0.4, 256
"""The example's: most of a gradient's norm, `linear_decay(last=0.4, warmup=20)`, `pack(256)`."""


def main(steps: int, warm: int) -> None:
    """Train, and print one line of JSON."""
    torch.set_num_threads(1)
    graph = wide_graph()
    source = graph.by_op("source")[0].function
    assert source is not None
    make = load(source, graph.root, exact=False)
    example = sys.modules[make.__module__]
    questions = make(**source.params)
    tower, lm = (build_module(graph.module(name), graph.root, graph.seed) for name in ("vit", "lm"))
    settings = _settings(graph)
    optimizers = [
        torch.optim.AdamW(module.parameters(), fused=True, **settings) for module in (tower, lm)
    ]
    losses = []
    began = 0.0
    for step in range(steps):
        if step == warm:
            sys.stdin.readline()
            began = time.process_time()
        batch = [questions[step * BATCH + i] for i in range(BATCH)]
        total, counted = _loss(tower, lm, batch, example.IMAGE)
        loss = total / counted
        loss.backward()  # type: ignore[no-untyped-call]
        for module, optimizer in zip((tower, lm), optimizers, strict=True):
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            for group in optimizer.param_groups:
                group["lr"] = settings["lr"] * _share(step, steps)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(total.detach()) / counted)
    print(json.dumps({"losses": losses, "cpu_s": time.process_time() - began}))


def _settings(graph: Graph) -> dict[str, Any]:
    settings = dict(graph.by_op("train")[0].attributes["optimizer"])
    assert settings.pop("name") == "adamw"
    return settings


def _share(step: int, steps: int) -> float:
    """Of the learning rate: it rises over the first steps and falls over the last."""
    return min(1.0, (step + 1) / WARMUP) * min(1.0, (steps - step) / (LAST * steps))


def _loss(tower: Any, lm: Any, batch: list[Any], image: int) -> tuple[Tensor, float]:
    """Sum of the cross-entropy of the answers' tokens, and how many they are."""
    features = _features(tower, [(q.patches, q.rows, q.cols) for q in batch])
    tokens = [np.asarray(q.tokens[:-1], np.int64) for q in batch]  # the last one predicts nothing
    packs = pack_cheapest(np.array([len(row) for row in tokens]), most=CAP)
    shape = (len(packs), packs.cap)
    ids, places, segments = (np.zeros(shape, np.int64) for _ in range(3))
    targets, weights = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    starts = np.zeros(len(batch), np.int64)
    for pack, (a, b) in enumerate(pairwise(packs.boundaries.tolist())):
        at = 0
        for segment, row in enumerate(packs.order[a:b].tolist(), start=1):
            run = slice(at, at + len(tokens[row]))
            ids[pack, run] = tokens[row]
            places[pack, run] = np.arange(len(tokens[row]))
            segments[pack, run] = segment
            targets[pack, run] = batch[row].tokens[1:]
            weights[pack, run] = batch[row].loss_mask[1:]
            starts[row] = pack * packs.cap + at
            at = run.stop
    index = [
        start + np.flatnonzero(row == image) for start, row in zip(starts, tokens, strict=True)
    ]
    hidden = lm(
        torch.from_numpy(ids),
        torch.from_numpy(places),
        torch.from_numpy(segments.astype(np.int32)),
        features,
        torch.from_numpy(np.concatenate(index)),
    )
    asked = torch.from_numpy(np.flatnonzero(weights))
    logits = lm.logits(hidden.flatten(0, 1)[asked])
    wanted = torch.from_numpy(targets).flatten()[asked]
    return functional.cross_entropy(logits, wanted, reduction="sum"), float(weights.sum())


def _features(tower: Any, images: list[Any]) -> Tensor:
    """Features of all images of all questions, in order: float [F, 64]."""
    patches = [array for of_sample, _, _ in images for array in of_sample]
    rows = [array for _, of_sample, _ in images for array in of_sample]
    cols = [array for _, _, of_sample in images for array in of_sample]
    ends = np.cumsum([0, *map(len, patches)])
    columns = {"patches": patches, "rows": rows, "cols": cols}
    flat = {name: torch.from_numpy(np.concatenate(parts)) for name, parts in columns.items()}
    found: Tensor = tower.encode(flat, {"patches": torch.from_numpy(ends)})[0]
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
