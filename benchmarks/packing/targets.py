"""The sections of the table, what each measures, and what it must reach."""

from collections.abc import Callable

from benchmarks.packing import figures

Measure = Callable[[str, int, int], figures.Figures]  # mix, seed, repeats
By = dict[str, float]  # mix -> target; "" is any other mix

FLUSHED = "window of 1000, packs flushed"
CARRIED = "window of 1000, carried over up to 5 windows"
ONLINE = "online best-fit"
SAMPLES = "4096 samples to 64 ranks"
PACKS = "packs of 4096 samples to 64 ranks"
ALL = "one million lengths, packed and dealt"

SECTIONS: dict[str, Measure] = {
    FLUSHED: figures.flushed_windows,
    CARRIED: figures.carried_windows,
    ONLINE: figures.online,
    SAMPLES: figures.dealt_samples,
    PACKS: figures.dealt_packs,
    ALL: figures.million,
}

ONLINE_FILL: By = {"": 0.985, "ecom": 0.990, "short": 0.998}
# Of short only seven packs fall to a rank: there the bound of the heaviest pack is what counts.
BACKBONE: By = {"ecom": 1.01, "infovqa": 1.01}
ENCODER: By = {"ecom": 1.02, "infovqa": 1.02}

AT_LEAST: dict[tuple[str, str], By] = {
    (FLUSHED, "fill"): {"": 0.994},
    (CARRIED, "fill"): {"": 0.996, "short": 0.998, "ecom": 0.998},
    (ONLINE, "fill, 64 open"): ONLINE_FILL,
    (ONLINE, "fill, 256 open"): ONLINE_FILL,
}
AT_MOST: dict[tuple[str, str], By] = {
    (SAMPLES, "max/mean"): {"": 1.002},
    (PACKS, "carry: backbone"): BACKBONE,
    (PACKS, "carry: encoder"): ENCODER,
    (PACKS, "spread: backbone"): BACKBONE,
    (PACKS, "spread: encoder"): ENCODER,
}
TIMES_AT_MOST: dict[tuple[str, str], By] = {
    (FLUSHED, "ms per 1000"): {"": 3.0},
    (SAMPLES, "ms"): {"": 5.0},
    (PACKS, "carry: ms"): {"": 15.0},
    (PACKS, "spread: ms"): {"": 15.0},
    (ALL, "seconds"): {"": 1.5},
}


def missed(section: str, figure: str, mix: str, value: float, *, timed: bool = True) -> bool:
    """Whether the figure misses its target; False where it has none."""
    key = (section, figure)
    least = _of(AT_LEAST.get(key, {}), mix)
    most = _of({**AT_MOST, **(TIMES_AT_MOST if timed else {})}.get(key, {}), mix)
    return (least is not None and value < least) or (most is not None and value > most)


def target(section: str, figure: str) -> str:
    """The target in words, empty where there is none."""
    key = (section, figure)
    least, most = AT_LEAST.get(key), {**AT_MOST, **TIMES_AT_MOST}.get(key)
    return f">= {_words(least)}" if least else f"<= {_words(most)}" if most else ""


def _of(by: By, mix: str) -> float | None:
    return by.get(mix, by.get(""))


def _words(by: By) -> str:
    return ", ".join(f"{value:g} ({mix})" if mix else f"{value:g}" for mix, value in by.items())
