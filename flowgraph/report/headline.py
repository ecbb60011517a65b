"""Which of a module's many figures people look at first."""

from collections.abc import Mapping
from typing import TypeVar

LEADING = ("reward", "accuracy", "exact_match", "loss")
"""In this order: the first one that a module has is its headline."""

TECHNICAL = ("lr", "grad_norm", "entropy", "behaviour_kl", "kl", "clipped", "tokens")
"""How the training goes rather than what it achieves: shown on request."""

T = TypeVar("T")


def headline(named: Mapping[str, object]) -> str | None:
    """The figure to show when there is room for one; None when all are technical.

    >>> headline({"loss": 0.3, "reward": 0.5, "lr": 1e-3})
    'reward'
    """
    return next((name for name in _by_interest(named) if name not in TECHNICAL), None)


def main_figures(named: Mapping[str, T]) -> dict[str, T]:
    """The figures that a summary shows, the leading ones first; one technical figure if alone."""
    order = [name for name in _by_interest(named) if name not in TECHNICAL]
    return {name: named[name] for name in order or list(named)[:1]}


def _by_interest(named: Mapping[str, object]) -> list[str]:
    """The leading ones, the user's own, an evaluation's rewards by agent (`reward/solver`)."""

    def rank(name: str) -> int:
        return LEADING.index(name) if name in LEADING else len(LEADING) + ("/" in name)

    return sorted(named, key=rank)


def number(value: float) -> str:
    """Short, and of one width for values of like size: 0.613, 12.4, 6230, 1.2e-09."""
    size = abs(value)
    if value != value or size == float("inf"):
        return str(value)
    if size and (size < 1e-3 or size >= 1e6):
        return f"{value:.1e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3f}"


def duration(seconds: float) -> str:
    """`48 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def budgets(pool_bytes: int, spill_bytes: int) -> str:
    """What records a worker may keep where: `64 MiB in memory and 20 GB on disk`."""
    mib = pool_bytes / (1 << 20)
    memory = f"{mib:,.0f}" if mib >= 100 else f"{mib:.3g}"
    disk = f" and {spill_bytes / 1e9:.3g} GB on disk" if spill_bytes else ""
    return f"{memory} MiB in memory{disk}"
