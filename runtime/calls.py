"""Generate calls and their completions as plain data for the wire: token arrays as packed bytes."""

from typing import Any

import numpy as np

from flowgraph.runtime.engine.interface import Call, Completion, Sampling


def call_to_plain(call: Call) -> tuple[Any, ...]:
    """(id, key, prompt as int64 bytes, max_tokens, temperature, stop, allowed)."""
    sampling = call.sampling
    return (
        call.id,
        call.key,
        call.prompt.astype(np.int64, copy=False).tobytes(),
        sampling.max_tokens,
        sampling.temperature,
        tuple(sampling.stop),
        tuple(sampling.allowed),
    )


def call_from_plain(plain: tuple[Any, ...], id: int) -> Call:
    """The call under another id: an engine numbers calls of several origins itself."""
    _, key, prompt, max_tokens, temperature, stop, allowed = plain
    return Call(
        id=id,
        key=key,
        prompt=np.frombuffer(prompt, np.int64),
        sampling=Sampling(
            max_tokens=max_tokens, temperature=temperature, stop=tuple(stop), allowed=tuple(allowed)
        ),
    )


def completion_to_plain(completion: Completion, id: int) -> tuple[Any, ...]:
    """(id, tokens int64, logprobs float32, versions int32), arrays as bytes."""
    return (
        id,
        completion.tokens.astype(np.int64, copy=False).tobytes(),
        completion.logprobs.astype(np.float32, copy=False).tobytes(),
        completion.versions.astype(np.int32, copy=False).tobytes(),
    )


def completion_from_plain(plain: tuple[Any, ...]) -> Completion:
    id, tokens, logprobs, versions = plain
    return Completion(
        id=id,
        tokens=np.frombuffer(tokens, np.int64),
        logprobs=np.frombuffer(logprobs, np.float32),
        versions=np.frombuffer(versions, np.int32),
    )
