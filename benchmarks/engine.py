"""Rollout speed: the engine against generating one call after the other, in the same process.

    python -m benchmarks.engine [--prompts 16] [--tries 16] [--layers 2] [--width 64] ...

Both roll out the same calls of the same decoder on one thread, with the same sampler and uniforms;
the plain loop has a cache of one slot. Figures are the best of several rounds taken in turns, so
that other load on the machine hits both alike.
"""

import time
from collections.abc import Callable

import click
import numpy as np
import torch

from flowgraph.models.factories import decoder
from flowgraph.runtime.engine.interface import Call, Sampling
from flowgraph.runtime.engine.sampler import sample
from flowgraph.runtime.engine.torch_engine import RolloutModule, TorchEngine
from flowgraph.runtime.randomness import UniformSource, generator, key

VOCAB = 24
PROMPT = 8  # tokens, on average
RESPONSE = 3  # tokens until a stop token, on average: a third of the vocabulary stops


def make_calls(prompts: int, tries: int, max_tokens: int, stops: int) -> list[Call]:
    """`tries` calls of each prompt, each ended by any of the first `stops` tokens."""
    rng = generator(key(0, "benchmark"))
    texts = [rng.integers(0, VOCAB, PROMPT + rng.integers(-2, 3)) for _ in range(prompts)]
    sampling = Sampling(max_tokens=max_tokens, stop=tuple(range(stops)))
    return [
        Call(id=number, key=key(0, number), prompt=texts[number // tries], sampling=sampling)
        for number in range(prompts * tries)
    ]


def plain_loop(module: RolloutModule, calls: list[Call], max_length: int) -> int:
    """Generate call by call; the number of tokens sampled."""
    uniforms, cache, slot = UniformSource(), module.new_cache(1, max_length), torch.zeros(1).long()
    total = 0
    for call in calls:
        sampling = call.sampling
        drawn = uniforms.draw(call.key, sampling.max_tokens)
        temperature = np.array([sampling.temperature])
        length = len(call.prompt)
        logits, kv = module.prefill(torch.from_numpy(call.prompt)[None], torch.tensor([length]))
        cache.write(slot, kv)
        for step in range(sampling.max_tokens):
            tokens, _ = sample(logits, temperature=temperature, uniforms=drawn[step : step + 1])
            total += 1
            if int(tokens[0]) in sampling.stop or step + 1 == sampling.max_tokens:
                break
            position = torch.tensor([length + step])
            logits = module.decode(torch.from_numpy(tokens), position, cache)
    return total


def engine_run(engine: TorchEngine, calls: list[Call]) -> int:
    """Submit all calls and advance to the end; the number of tokens sampled."""
    engine.submit(calls)
    total = 0
    while engine.pending:
        total += sum(len(completion.tokens) for completion in engine.advance())
    return total


@click.command(help=__doc__)
@click.option("--prompts", default=16)
@click.option("--tries", default=16)
@click.option("--layers", default=2)
@click.option("--width", default=64)
@click.option("--heads", default=4)
@click.option("--slots", default=256)
@click.option("--max-length", default=32)
@click.option("--max-tokens", default=8)
@click.option("--stops", default=VOCAB // RESPONSE, help="How many tokens stop; 0: none does.")
@click.option("--rounds", default=7)
def main(
    prompts: int,
    tries: int,
    layers: int,
    width: int,
    heads: int,
    slots: int,
    max_length: int,
    max_tokens: int,
    stops: int,
    rounds: int,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = decoder(vocab=VOCAB, layers=layers, width=width, heads=heads, max_length=max_length)
    calls = make_calls(prompts, tries, max_tokens, stops)
    engines = {
        exact: TorchEngine(module, slots=slots, max_length=max_length, exact=exact)
        for exact in (False, True)
    }
    contenders: dict[str, Callable[[], int]] = {
        "one call after the other": lambda: plain_loop(module, calls, max_length),
        "engine": lambda: engine_run(engines[False], calls),
        "engine, exact": lambda: engine_run(engines[True], calls),
    }
    print(
        f"{len(calls)} calls, {prompts} prompts of about {PROMPT} tokens, decoder {layers}x{width}"
    )
    seconds, tokens = measure(contenders, rounds)
    slowest = max(seconds.values())
    for name, best in seconds.items():
        print(
            f"{name:26} {1e3 * best:8.1f} ms  {tokens[name] / best:8.0f} tokens/s"
            f"  {slowest / best:5.1f}x"
        )


def measure(
    contenders: dict[str, Callable[[], int]], rounds: int
) -> tuple[dict[str, float], dict[str, int]]:
    """Best seconds of each and the tokens it sampled, rounds interleaved."""
    seconds = dict.fromkeys(contenders, float("inf"))
    tokens = dict.fromkeys(contenders, 0)
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            tokens[name] = run()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds, tokens


if __name__ == "__main__":
    main()
