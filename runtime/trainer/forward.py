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

from flowgraph.kernels import linear_logprobs
from flowgraph.runtime.column import Int64s
from flowgraph.runtime.trainer.micro_batch import MicroBatch
from flowgraph.runtime.trainer.outputs import Outputs

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
    """tokens: int64, the item's flat tokens.

    Log-probs and entropies are those of logits / temperature.
    """
    arguments = [
        torch.from_numpy(micro.packed(values)).to(device)
        for values in (tokens[micro.source], micro.within, micro.segment)
    ]
    if features is not None:
        rows, places = features
        arguments += [rows.to(module.unembedding().dtype), torch.from_numpy(places).to(device)]
    hidden_RLD: Tensor = module(*arguments)
    targets = tokens[micro.taken[micro.selected]]
    state, target, back = _distinct(micro.state, targets)
    states = hidden_RLD.flatten(0, 1).index_select(0, torch.from_numpy(state).to(device))
    logprobs, entropy = linear_logprobs(
        states,
        module.unembedding(),
        torch.from_numpy(target).to(device),
        temperature=temperature,
    )
    back_S = torch.from_numpy(back).to(device)
    selected_S = torch.from_numpy(micro.selected).to(device)
    nothing_T = torch.zeros(micro.taken.size, device=device)
    return Outputs(
        logprobs=nothing_T.index_copy(0, selected_S, logprobs.index_select(0, back_S)),
        entropy=nothing_T.index_copy(0, selected_S, entropy.index_select(0, back_S)),
        segment_ids=torch.from_numpy(micro.segment_ids()).to(device),
        selected=selected_S,
        states=states.detach().index_select(0, back_S),
        module=module,
    )


def is_decoder(module: Any) -> bool:
    """Whether the module speaks this file's contract."""
    return callable(getattr(module, "unembedding", None)) and callable(
        getattr(module, "logits", None)
    )


def _distinct(states: Int64s, targets: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Each (state, target) once: states, targets [U], and where each given one is among them."""
    width = int(targets.max(initial=0)) + 1
    _, first, back = np.unique(states * width + targets, return_index=True, return_inverse=True)
    return states[first], targets[first], back.reshape(-1)
