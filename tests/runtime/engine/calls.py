"""Calls to roll out, and loops that drive an engine to the end."""

from collections.abc import Sequence

import numpy as np
import torch

from flowgraph.models.decoder_lm import DecoderLM
from flowgraph.runtime.engine.interface import Call, Completion, Engine, Sampling
from flowgraph.runtime.randomness import key
from tests.runtime.engine.models import VOCAB


def make_call(number: int, prompt: Sequence[int], **sampling: object) -> Call:
    """A call whose randomness is keyed by its number."""
    settings = Sampling(**{"max_tokens": 5, **sampling})  # type: ignore[arg-type]
    return Call(
        id=number, key=key("call", number), prompt=np.array(prompt, np.int64), sampling=settings
    )


def varied_calls(count: int, *, seed: int = 0, longest: int = 24) -> list[Call]:
    """Calls of different lengths, limits, temperatures, stops; some share a prompt."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, VOCAB, rng.integers(1, longest + 1)).tolist() for _ in range(count)]
    return [
        make_call(
            number,
            prompts[number // 2 if number % 3 else number],
            max_tokens=int(rng.integers(1, 13)),
            temperature=float(rng.choice([0.0, 0.6, 1.0, 1.5])),
            stop=tuple(rng.integers(0, VOCAB, rng.integers(0, 3)).tolist()),
            allowed=tuple(rng.permutation(VOCAB)[:9].tolist()) if number % 4 == 0 else (),
        )
        for number in range(count)
    ]


def finish(engine: Engine) -> dict[int, Completion]:
    """What is still pending, by call; fails if a call is returned twice."""
    done: dict[int, Completion] = {}
    while engine.pending:
        for completion in engine.advance():
            assert completion.id not in done
            done[completion.id] = completion
    return done


def bits(completion: Completion) -> tuple[bytes, bytes]:
    """Tokens and log-probabilities, to compare exactly."""
    return completion.tokens.tobytes(), completion.logprobs.tobytes()


def expected_logprobs(module: DecoderLM, call: Call, completion: Completion) -> np.ndarray:
    """Log-probabilities by one plain forward over prompt and response, float64 [n]."""
    row = torch.from_numpy(np.concatenate([call.prompt, completion.tokens]))[None]
    positions = torch.arange(row.shape[1])[None]
    with torch.no_grad():
        hidden = module(row, positions, torch.ones_like(row, dtype=torch.int32))
        logits = module.logits(hidden)[0, len(call.prompt) - 1 : -1].double()
    if call.sampling.allowed:
        refused = torch.ones(VOCAB, dtype=torch.bool)
        refused[list(call.sampling.allowed)] = False
        logits = logits.masked_fill(refused, -torch.inf)
    temperature = call.sampling.temperature
    if temperature == 0.0:
        return np.zeros(len(completion.tokens))
    scores = torch.log_softmax(logits / temperature, -1)
    chosen: np.ndarray = scores[torch.arange(len(scores)), completion.tokens].numpy()
    return chosen
