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

from flowgraph.kernels import gather_rows, linear_logprobs, scatter_rows
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
    """tokens: int64, the item's flat tokens, on the host.

    Log-probs and entropies are those of logits / temperature.
    """
    arguments = [micro.tokens, micro.positions, micro.segment_ids]
    if features is not None:
        rows, places = features
        arguments += [rows.to(module.unembedding().dtype), torch.from_numpy(places).to(device)]
    hidden_RLD: Tensor = module(*arguments)
    targets = tokens[micro.taken[micro.selected]]
    state_U, target_U, back_S, selected_S = (
        torch.from_numpy(index).to(device)
        for index in (*_distinct(micro.state, targets), micro.selected)
    )
    states = gather_rows(hidden_RLD.flatten(0, 1), state_U)
    logprobs, entropy = (
        scatter_rows(gather_rows(values_U, back_S), selected_S, micro.taken.size)
        for values_U in linear_logprobs(
            states, module.unembedding(), target_U, temperature=temperature
        )
    )
    return Outputs(
        logprobs=logprobs,
        entropy=entropy,
        segment_ids=torch.from_numpy(micro.piece_of_token()).to(device),
        selected=selected_S,
        state_of=back_S,
        states=states.detach(),
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
