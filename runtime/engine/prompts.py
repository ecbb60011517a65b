"""Which prompts are prefilled together, and in what shape.

Equal prompts are prefilled once: a prefilled row is a function of its prompt and of the shape
alone, so its copies are what each call would have got.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHORTEST_BUCKET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillBatch:
    """One forward: `tokens` int64 [P, L] padded with 0, `lengths` int64 [P], >= 1.

    Calls `members` int64 [n] (positions in what was planned) take rows `rows` int64 [n] of it.
    """

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    members: NDArray[np.int64]
    rows: NDArray[np.int64]


def plan_exact(
    prompts: Sequence[NDArray[np.int64]], *, rows: int, max_length: int
) -> list[PrefillBatch]:
    """Batches of always `rows` rows, each prompt's width depending on its own length only.

    So a prompt's result is the same bit for bit whatever it arrives with.
    """
    groups: dict[int, list[tuple[bytes, list[int]]]] = {}
    for text, members in _distinct(prompts):
        width = bucket(len(prompts[members[0]]), max_length)
        groups.setdefault(width, []).append((text, members))
    return [
        _batch(group[start : start + rows], height=rows, width=width)
        for width, group in groups.items()
        for start in range(0, len(group), rows)
    ]


def plan_trimmed(prompts: Sequence[NDArray[np.int64]], *, tokens: int) -> list[PrefillBatch]:
    """Batches of like lengths, no wider than needed, of at most `tokens` with padding.

    A prompt longer than `tokens` gets a batch of its own.
    """
    batches: list[PrefillBatch] = []
    group: list[tuple[bytes, list[int]]] = []
    width = 0
    for text, members in sorted(_distinct(prompts), key=lambda one: len(one[0])):
        length = len(prompts[members[0]])
        if group and length * (len(group) + 1) > tokens:
            batches.append(_batch(group, height=len(group), width=width))
            group = []
        group.append((text, members))
        width = length
    if group:
        batches.append(_batch(group, height=len(group), width=width))
    return batches


def bucket(length: int, max_length: int) -> int:
    """The width that a prompt of `length` is padded to in exact mode: a power of two."""
    return min(max_length, max(SHORTEST_BUCKET, 1 << (length - 1).bit_length()))


def _distinct(prompts: Sequence[NDArray[np.int64]]) -> list[tuple[bytes, list[int]]]:
    """Each different prompt's bytes and who has it, in order of first appearance."""
    found: dict[bytes, list[int]] = {}
    for position, prompt in enumerate(prompts):
        found.setdefault(prompt.tobytes(), []).append(position)
    return list(found.items())


def _batch(group: list[tuple[bytes, list[int]]], *, height: int, width: int) -> PrefillBatch:
    tokens = np.zeros((height, width), np.int64)
    lengths = np.ones(height, np.int64)
    for row, (text, _) in enumerate(group):
        prompt = np.frombuffer(text, np.int64)
        tokens[row, : len(prompt)] = prompt
        lengths[row] = len(prompt)
    shares = [len(members) for _, members in group]
    return PrefillBatch(
        tokens=tokens,
        lengths=lengths,
        members=np.concatenate([np.array(members, np.int64) for _, members in group]),
        rows=np.repeat(np.arange(len(group)), shares),
    )
