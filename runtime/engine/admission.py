"""Whether calls can be served as asked, checked before any of them is queued."""

from collections.abc import Sequence

import numpy as np

from flowgraph.runtime.engine.interface import Call, CallRefused
from flowgraph.runtime.randomness import KEY_BYTES


def check_calls(calls: Sequence[Call], *, max_length: int, reads: int, says: int) -> None:
    """Raise CallRefused for the first call that does not fit `max_length` or the vocabulary.

    reads, says: how many ids the module may be shown, and may sample.
    """
    for call in calls:
        _check_prompt(call)
        _check_sampling(call, says)
        _check_length(call, max_length)
    if not calls:
        return
    everything = np.concatenate([call.prompt for call in calls])
    if everything.min() < 0 or everything.max() >= reads:
        call = next(call for call in calls if call.prompt.min() < 0 or call.prompt.max() >= reads)
        worst = call.prompt.min() if call.prompt.min() < 0 else call.prompt.max()
        raise CallRefused(call.id, f"prompt: token {worst} is outside the vocabulary of {reads}")


def _check_prompt(call: Call) -> None:
    prompt = call.prompt
    if prompt.ndim != 1 or prompt.dtype != np.int64 or len(prompt) == 0:
        raise CallRefused(
            call.id,
            f"prompt: expects int64 [n] with n >= 1, got {prompt.dtype} {list(prompt.shape)}",
        )
    if len(call.key) != KEY_BYTES:
        raise CallRefused(call.id, f"key: expects {KEY_BYTES} bytes, got {len(call.key)}")


def _check_sampling(call: Call, vocab: int) -> None:
    sampling = call.sampling
    if sampling.max_tokens < 1:
        raise CallRefused(call.id, f"max_tokens: expects 1 or more, got {sampling.max_tokens}")
    if not 0.0 <= sampling.temperature < float("inf"):
        raise CallRefused(call.id, f"temperature: expects 0 or more, got {sampling.temperature}")
    for name, tokens in (("stop", sampling.stop), ("allowed", sampling.allowed)):
        if tokens and (min(tokens) < 0 or max(tokens) >= vocab):
            raise CallRefused(
                call.id, f"{name}: {list(tokens)} leaves the vocabulary of {vocab} tokens"
            )


def _check_length(call: Call, max_length: int) -> None:
    prompt, response = len(call.prompt), call.sampling.max_tokens
    if prompt + response > max_length:
        raise CallRefused(
            call.id,
            f"a prompt of {prompt} tokens and a response of up to {response} exceed the agent's "
            f"max_length of {max_length} by {prompt + response - max_length}",
            hint=f"max_tokens={max_length - prompt}"
            if prompt < max_length
            else "a shorter prompt, or a larger max_length",
        )
