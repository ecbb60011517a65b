"""Plans with other values of the right types: they pass every reader, and meet the rules."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

NUMBERS = (-1, 0, 1, 2, 3, 7, 64, 4096, 2**31, 2**53, 2**63 - 1, -(2**40))
RATES = (0.0, -1.0, 1e-300, 0.3, 1.0, 7.5, 1e12, 1e308, float("inf"), float("nan"))


def words_of(value: Any) -> Iterator[str]:
    """All texts in a dialect's value, which are mostly names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from words_of(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from words_of(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from words_of(getattr(value, field.name))


def spoil_typed(value: Any, words: tuple[str, ...], draw: random.Random) -> Any:
    """One to three other values, of the types of those that they replace."""
    for _ in range(draw.randint(1, 3)):
        value = _changed(value, words, draw)
    return value


def _changed(value: Any, words: tuple[str, ...], draw: random.Random) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = draw.choice([field.name for field in fields(value)])
        return replace(value, **{name: _changed(getattr(value, name), words, draw)})
    if isinstance(value, tuple) and value:
        return _tuple(value, words, draw)
    if isinstance(value, Mapping) and value:
        key = draw.choice(sorted(value))
        if draw.random() < 0.15:
            return {k: item for k, item in value.items() if k != key}
        return {**value, key: _changed(value[key], words, draw)}
    return _scalar(value, words, draw)


def _tuple(value: tuple[Any, ...], words: tuple[str, ...], draw: random.Random) -> tuple[Any, ...]:
    i, j = draw.randrange(len(value)), draw.randrange(len(value))
    alike = len({type(item) for item in value}) == 1
    change = draw.random() if alike else 1.0  # a pair of different things stays one
    if change < 0.08:
        return value[:i] + value[i + 1 :]
    if change < 0.16:
        return (*value[:i], value[j], *value[i:])
    if change < 0.24:
        items = list(value)
        items[i], items[j] = items[j], items[i]
        return tuple(items)
    return (*value[:i], _changed(value[i], words, draw), *value[i + 1 :])


def _scalar(value: Any, words: tuple[str, ...], draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((value + 1, value - 1, value * 2, *NUMBERS))
    if isinstance(value, float):
        return draw.choice((value * 2, value / 3, -value, *RATES))
    if isinstance(value, str):
        return draw.choice((*draw.choices(words, k=4), f"{value}x", ""))
    return value
