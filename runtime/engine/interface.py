"""What every rollout engine does: token ids in, token ids with log-probabilities out.

An engine belongs to one worker and one module. It starts no thread and waits for nothing: whoever
drives it calls `advance` while `pending` is not 0. How other engines fit:

- vLLM: `submit` is `LLMEngine.add_request(str(call.id), {"prompt_token_ids": ...}, params)` with
  `SamplingParams(temperature, max_tokens, stop_token_ids=stop, allowed_token_ids=allowed or None,
  logprobs=0, seed=<first 8 bytes of call.key>, detokenize=False)`; `advance` is
  `LLMEngine.step()`, whose finished outputs become completions (`logprobs_mode` must be
  `processed_logprobs`, since ours are those of the distribution sampled from); `load_weights` is
  `collective_rpc` of a function that copies the flat buffer into the model's parameters, after
  `reset_prefix_cache()`. Tokens get the version that was loaded when the step began.
- SGLang: the same with `Engine.async_generate(input_ids=..., sampling_params=...,
  return_logprob=True)` as tasks of the worker's event loop, finished ones collected by `advance`,
  and `update_weights_from_tensor`.

Neither gives results that are bit-identical over batch compositions, so neither may serve `exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from flowgraph.ir.errors import RunFailed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a call's tokens are drawn.

    `max_tokens` >= 1 counts sampled tokens. Sampling ends after a token of `stop`, which is kept.
    `allowed`: only these token ids may be sampled (empty: all). Temperature 0 takes the likeliest.
    """

    max_tokens: int
    temperature: float = 1.0
    stop: tuple[int, ...] = ()
    allowed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. `id` names it on this engine; `key` (16 bytes) is all that its draws depend on.

    `prompt` int64 [n], n >= 1.
    """

    id: int
    key: bytes
    prompt: NDArray[np.int64]
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completion:
    """The sampled tokens of one call, n >= 1.

    `tokens` int64 [n]; `logprobs` float32 [n], under the distribution that was sampled from
    (temperature and `allowed` applied); `versions` int32 [n], of the weights behind each token.
    """

    id: int
    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]


class CallRefused(RunFailed):
    """A call cannot be served as asked: it is too long, empty, or names tokens that do not exist.

    `call_id` says which. Nothing of the `submit` that raised it was taken.
    """

    def __init__(self, call_id: int, what: str, *, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.call_id = call_id


class Engine(Protocol):
    """A rollout engine. Each call submitted is returned once, by some later `advance`."""

    @property
    def pending(self) -> int:
        """Calls submitted and not yet returned."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights that the next token is sampled from."""
        ...

    def submit(self, calls: Sequence[Call]) -> None:
        """Queue calls; raises CallRefused, and then queues none of them."""
        ...

    def advance(self) -> list[Completion]:
        """Admit what fits, sample one or a few tokens for every running call; what finished."""
        ...

    def load_weights(
        self, version: int, flat: NDArray[np.generic] | Tensor, digest: str | None = None
    ) -> None:
        """Replace the weights by a flat buffer as `flowgraph.runtime.weights.flatten` makes it.

        A digest is verified when given. Running calls go on with the new weights, and their
        further tokens carry the new version.
        """
        ...
