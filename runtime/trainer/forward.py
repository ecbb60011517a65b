"""A decoder's forward over a micro-batch, down to log-probs of the tokens that count.

The model is called as `module(tokens, positions, segment_ids[, features, feature_index])` and gives
hidden states [R, L, D]; `module.unembedding()` [V, D] turns those into logits. Only states that a
counted token is predicted from are turned: in rollouts most tokens are prompt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.kernels import gather_rows, linear_logprobs
from flowgraph.runtime.column import Int64s
from flowgraph.runtime.trainer.micro_batch import MicroBatch
from flowgraph.runtime.trainer.outputs import Outputs, Places
from flowgraph.runtime.trainer.tensors import on_device

Features = tuple[Tensor, Int64s]
"""Feature rows [F, D] and the place, int64 [F], in R * L of the token each stands for."""


def forward(
    module: Any,
    micro: MicroBatch,
    tokens: NDArray[np.int64],
    *,
    temperature: float,
    device: torch.device,
    features: Features | None = None,
) -> Outputs:
    """tokens: int64, the item's flat tokens, on the host.

    Log-probs and entropies are those of logits / temperature.
    """
    arguments = [micro.tokens, micro.positions, micro.segment_ids]
    if features is not None:
        rows, places = features
        arguments += [rows.to(module.unembedding().dtype), on_device(places, "int64", device)]
    hidden_RLD: Tensor = module(*arguments)
    targets = tokens[micro.taken[micro.selected]]
    state_U, target_U, back_S = _distinct(micro.state, targets)
    states = gather_rows(hidden_RLD.flatten(0, 1), on_device(state_U, "int64", device))
    logprobs, entropy = linear_logprobs(
        states,
        module.unembedding(),
        on_device(target_U, "int64", device),
        temperature=temperature,
    )
    of_tokens = Places(
        tokens=micro.taken.size,
        selected=on_device(micro.selected, "int64", device),
        of=None if back_S is None else on_device(back_S, "int64", device),
    )
    return Outputs(
        logprobs=of_tokens.spread(logprobs),
        entropy=of_tokens.spread(entropy),
        segment_ids=on_device(micro.piece_of_token(), "int32", device),
        places=of_tokens,
        states=states.detach(),
        module=module,
    )


def is_decoder(module: Any) -> bool:
    """Whether the module speaks this file's contract."""
    return callable(getattr(module, "unembedding", None)) and callable(
        getattr(module, "logits", None)
    )


def _distinct(states: Int64s, targets: Int64s) -> tuple[Int64s, Int64s, Int64s | None]:
    """Each (state, target) once: states, targets [U], and where each given one is among them.

    None for the last where nothing repeats: then each is where it was.
    """
    width = int(targets.max(initial=0)) + 1
    pairs = states * width + targets
    ranked = np.sort(pairs)
    if not (ranked[1:] == ranked[:-1]).any():
        return states, targets, None
    _, first, back = np.unique(pairs, return_index=True, return_inverse=True)
    return states[first], targets[first], back.reshape(-1)
