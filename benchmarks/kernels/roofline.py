"""`python -m benchmarks.kernels.roofline`: bytes and least times of one micro-batch, by datasheet.

The micro-batch: 16,384 tokens in samples of 512, six token fields, width 4096 in bf16, half of the
tokens images, a vocabulary of 151,936, 8 GiB of weights to send. Nothing here was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

# peak memory bandwidth in bytes a second: vendors' datasheets (SXM or OAM modules)
BANDWIDTH = {"A100 80 GB": 2.039e12, "H100": 3.35e12, "H200": 4.8e12, "MI300X": 5.3e12}
TOKENS, SAMPLE, WIDTH, VOCABULARY = 16_384, 512, 4096, 151_936
TOKEN_FIELDS = (8, 8, 8, 4, 4, 4)
ROW = 2 * WIDTH
LOGITS = TOKENS * VOCABULARY * 2
WEIGHTS = 8 << 30
ITEM_BYTES, BLOCK_BYTES = 32_768, 8192


@dataclass(frozen=True, slots=True)
class Work:
    """What a call must move, and what the kernel's tables and maps add to it, in bytes."""

    name: str
    must: int
    extra: int

    def line(self) -> str:
        """A row of the table: megabytes, ratio, and microseconds on every device."""
        does = self.must + self.extra
        times = " | ".join(f"{does / rate * 1e6:,.1f}" for rate in BANDWIDTH.values())
        return f"| {self.name} | {self.must / 1e6:,.1f} | {does / self.must:.3f} | {times} |"


def works() -> list[Work]:
    """Every kernel on the micro-batch above."""
    samples = TOKENS // SAMPLE
    token_bytes = TOKENS * (2 * sum(TOKEN_FIELDS) + 4 + 8)
    token_items = sum(samples * -(-SAMPLE * size // ITEM_BYTES) for size in (*TOKEN_FIELDS, 4, 8))
    features = 2 * TOKENS * ROW
    feature_items = samples * -(-SAMPLE * ROW // ITEM_BYTES)
    blocks = WEIGHTS // BLOCK_BYTES
    return [
        Work("pack, six token fields", token_bytes, 40 * token_items),
        Work("pack, a feature matrix", features, 40 * feature_items),
        Work("gather_rows, write_rows_", features, 8 * TOKENS),
        Work("merge_features", features, (8 + 8) * TOKENS + 2 * 8 * TOKENS // 2),
        Work("gather_logprobs, forward", LOGITS, 40 * TOKENS),
        Work("gather_logprobs, backward", 2 * LOGITS, 40 * TOKENS),
        # beside its matmuls: chunks of logits are written and read forward (2), and backward
        # written, turned into gradients in place (2), and read by two matmuls (2)
        Work("linear_logprobs, both ways, logits only", 2 * LOGITS, 5 * LOGITS),
        Work("segment_reduce, fp32 tokens", 4 * TOKENS, 8 * samples + 4 * samples),
        Work("flatten with digest", 2 * WEIGHTS, (48 + 2 * 2 * 16) * blocks),
    ]


def main() -> None:
    """Prints the table."""
    names = " | ".join(f"{name}, us" for name in BANDWIDTH)
    print(f"| call | must move, MB | moves / must | {names} |")
    print("|---|---:|---:|" + "---:|" * len(BANDWIDTH))
    for work in works():
        print(work.line())


if __name__ == "__main__":
    main()
