"""What to do with samples that no pack can hold, decided before packing and never in silence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowgraph.ir.errors import GraphError
from flowgraph.runtime.policy.packs import Cut, Dropped, Ints

OverLong = Literal["error", "drop", "truncate", "split"]
NAMED_IN_ERRORS = 8  # ids spelled out in a message; the rest is counted


class OverLongError(GraphError):
    """A sample exceeds a cap and the declared policy gives no way to go on.

    You get it from packing with over_long="error", and with "truncate" or "split" where cutting
    tokens cannot help (too many visual tokens) or would part images from their placeholders. You do
    not get it with "drop".
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The hard caps of one pack, and the policy for what exceeds them alone."""

    cap: int  # tokens
    second_cap: int | None = None  # visual tokens
    over_long: OverLong = "error"

    def __post_init__(self) -> None:
        if self.cap < 1 or (self.second_cap is not None and self.second_cap < 0):
            raise ValueError(f"expects cap >= 1 and second_cap >= 0, got {self}")
        if self.over_long not in get_args(OverLong):
            raise ValueError(
                f"over_long: expects one of {', '.join(get_args(OverLong))}, got {self.over_long!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Pieces that each fit a pack, in input order."""

    sample: Ints  # [pieces]
    start: Ints  # [pieces]
    length: Ints  # [pieces], <= cap
    second: Ints  # [pieces], <= second_cap
    dropped: tuple[Dropped, ...] = ()
    cut: tuple[Cut, ...] = ()


def admit(
    lengths: ArrayLike,
    limits: Limits,
    *,
    second: ArrayLike | None = None,
    ids: Sequence[object] | NDArray[np.generic] | None = None,
    first: int = 0,
) -> Admitted:
    """Apply the over-long policy. lengths, second: int[n] tokens and visual tokens.

    ids name samples in errors and records, by default their index; `first` is the index of the
    first sample. Raises ValueError for malformed input and OverLongError as that class says.
    """
    tokens = _counts(lengths, "lengths")
    visual = np.zeros_like(tokens) if second is None else _counts(second, "second")
    if visual.shape != tokens.shape or (ids is not None and len(ids) != tokens.size):
        raise ValueError("expects lengths, second and ids to be of one size")
    if second is None and limits.second_cap is not None:
        raise ValueError("second_cap needs `second`, each sample's visual tokens")
    names: Sequence[object] | NDArray[np.generic] = (
        range(first, first + tokens.size) if ids is None else ids
    )
    for counts, what in ((tokens, "length"), (visual, "second")):
        if (counts < 0).any():
            raise ValueError(
                f"negative {what}: {_named(np.flatnonzero(counts < 0), names, counts)}"
            )

    index = np.arange(first, first + tokens.size, dtype=np.int64)
    over = tokens > limits.cap
    over_second = visual > limits.second_cap if limits.second_cap is not None else over & False
    if not (over.any() or over_second.any()):
        return Admitted(sample=index, start=index * 0, length=tokens, second=visual)
    if limits.over_long == "drop":
        gone = over | over_second
        dropped = tuple(
            Dropped(
                index=first + i,
                ident=_plain(names[i]),
                length=int(tokens[i]),
                second=int(visual[i]),
                reason="over-long" if over[i] else "over-second-cap",
            )
            for i in np.flatnonzero(gone).tolist()
        )
        kept = ~gone
        return Admitted(
            sample=index[kept],
            start=index[kept] * 0,
            length=tokens[kept],
            second=visual[kept],
            dropped=dropped,
        )
    _refuse(limits, names, tokens=tokens, visual=visual, over=over, over_second=over_second)
    return _cut(limits, names, tokens=tokens, visual=visual, first=first)


def _refuse(
    limits: Limits,
    names: Sequence[object] | NDArray[np.generic],
    *,
    tokens: Ints,
    visual: Ints,
    over: NDArray[np.bool_],
    over_second: NDArray[np.bool_],
) -> None:
    """Raise for samples that the policy does not cover."""
    if over_second.any():
        raise OverLongError(
            f"over the cap of {limits.second_cap} visual tokens (policy {limits.over_long!r}): "
            f"{_named(np.flatnonzero(over_second), names, visual)}",
            hint="raise the cap, resize the images, or declare over_long='drop'",
        )
    if limits.over_long == "error":
        raise OverLongError(
            f"over the cap of {limits.cap} tokens: {_named(np.flatnonzero(over), names, tokens)}",
            hint="raise the cap, or declare over_long='drop', 'truncate' or 'split'",
        )
    # Where the images lie inside the sample is not known here, so a cut could part an image's
    # features from its placeholders.
    torn = over & (visual > 0)
    if torn.any():
        raise OverLongError(
            f"over_long={limits.over_long!r} would cut samples with images: "
            f"{_named(np.flatnonzero(torn), names, tokens)}",
            hint="raise the cap, or declare over_long='drop'",
        )


def _cut(
    limits: Limits,
    names: Sequence[object] | NDArray[np.generic],
    *,
    tokens: Ints,
    visual: Ints,
    first: int,
) -> Admitted:
    """Truncate, or split into pieces of cap tokens and a rest."""
    cap = limits.cap
    if limits.over_long == "truncate":
        pieces = np.ones_like(tokens)
    else:
        pieces = np.maximum(1, -(-tokens // cap))
    owner = np.repeat(np.arange(tokens.size), pieces)
    ordinal = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = ordinal * cap
    length = np.minimum(cap, tokens[owner] - start)
    cut = tuple(
        Cut(
            index=first + i,
            ident=_plain(names[i]),
            length=int(tokens[i]),
            kept=min(int(tokens[i]), int(pieces[i]) * cap),
            pieces=int(pieces[i]),
        )
        for i in np.flatnonzero(tokens > cap).tolist()
    )
    return Admitted(sample=owner + first, start=start, length=length, second=visual[owner], cut=cut)


def _counts(values: ArrayLike, what: str) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{what}: expects a vector, got shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what}: expects integers, got {array.dtype}")
    return array.astype(np.int64)


def _plain(name: object) -> object:
    return name.item() if isinstance(name, np.generic) else name


def _named(where: Ints, names: Sequence[object] | NDArray[np.generic], counts: Ints) -> str:
    listed = [f"{_plain(names[i])!r} ({counts[i]})" for i in where[:NAMED_IN_ERRORS].tolist()]
    more = f" and {where.size - len(listed)} more" if where.size > len(listed) else ""
    return f"sample {', '.join(listed)}{more}"
