"""Ways to spoil a text, bytes, or plain data; deterministic for a generator."""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

TOKEN = re.compile(r"\s+|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_][\w-]*|-?[\d.]+(?:e[+-]?\d+)?|.", re.DOTALL)
WORDS = (
    *("{", "}", "(", ")", "<", ">", "=", ":", ",", "*", "@", "#", '"', "null", "true", "false"),
    *("graph", "plan", "stage", "stream", "by", "at", "type", "0", "-1", "1e999", "nan", "[", "]"),
    *("99999999999999999999", '"\\u0000"', '"x"', "float32", "\x00", "\ud7ff", "é"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 0.5, -0.0, 1e308, float("inf")),
    *("", "x", "stage", "train", "lm", "../../etc", "\x00", "é" * 50, (), {}, ("x",), {"x": 1}),
)


def spoil_text(text: str, draw: random.Random) -> str:
    """One to three changes of words, letters, or runs of words."""
    for _ in range(draw.randint(1, 3)):
        text = draw.choice(_TEXT)(text, draw)
    return text


def _letters(text: str, draw: random.Random) -> str:
    at, length = draw.randrange(len(text) + 1), draw.choice((0, 1, 1, 5, 50))
    return text[:at] + draw.choice(("", *WORDS)) + text[at + length :]


def _words(text: str, draw: random.Random) -> str:
    words = TOKEN.findall(text)
    if len(words) < 2:
        return draw.choice(WORDS)
    i, j = draw.randrange(len(words)), draw.randrange(len(words))
    change = draw.randrange(4)
    if change == 0:
        words[i], words[j] = words[j], words[i]
    elif change == 1:
        del words[i]
    elif change == 2:
        words[i] = draw.choice(WORDS)
    else:
        words[i:i] = words[min(i, j) : min(i, j) + draw.randint(1, 40)]
    return "".join(words)


def _numbers(text: str, draw: random.Random) -> str:
    """Keeps the structure: another number in a number's place."""
    found = list(re.finditer(r"(?<![\w\"])\d+", text))
    if not found:
        return text
    one = draw.choice(found)
    value = draw.choice(("0", "-1", "1", "7", "4294967296", "1.5", "1e30", str(2**70)))
    return text[: one.start()] + value + text[one.end() :]


def _names(text: str, draw: random.Random) -> str:
    """Keeps the structure: a text of the document in another text's place."""
    found = list(re.finditer(r'"[^"\n]*"', text))
    if not found:
        return text
    one, other = draw.choice(found), draw.choice(found)
    return text[: one.start()] + other.group() + text[one.end() :]


def _nested(text: str, draw: random.Random) -> str:
    """Deeper than any reader's stack."""
    at = draw.randrange(len(text) + 1)
    one = draw.choice(("(", "{x: ", "{", "<", '"'))
    return text[:at] + one * draw.choice((3, 100, 5000)) + text[at:]


_TEXT: tuple[Callable[[str, random.Random], str], ...] = (
    _letters,
    _words,
    _words,
    _numbers,
    _numbers,
    _names,
    _names,
    _nested,
)


def spoil_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to three changed, lost, doubled or added bytes, or a file cut short."""
    spoiled = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(spoiled) + 1)
        change = draw.randrange(5)
        if change == 0 and at < len(spoiled):
            spoiled[at] = draw.randrange(256)
        elif change == 1:
            del spoiled[at : at + draw.choice((1, 8, 100))]
        elif change == 2:
            spoiled[at:at] = spoiled[at : at + draw.choice((1, 8, 100))]
        elif change == 3:
            spoiled[at:at] = draw.randbytes(draw.choice((1, 4, 16)))
        else:
            # Heads of long maps, arrays and texts, which promise more than there is.
            spoiled[at : at + 5] = draw.choice((b"\xdf", b"\xdd", b"\xdb", b"\xc6")) + b"\x7f" * 4
    return bytes(spoiled)


def spoil_data(plain: Any, draw: random.Random) -> Any:
    """Plain data with one to three entries changed, lost, doubled, moved or wrapped."""
    for _ in range(draw.randint(1, 3)):
        plain = _at_random(plain, draw, draw.randint(0, 6))
    return plain


def _at_random(value: Any, draw: random.Random, depth: int) -> Any:
    """Walks down some entries, then changes what is there."""
    if depth and isinstance(value, Mapping) and value:
        key = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return _changed_keys(dict(value), key, draw)
        return {**value, key: _at_random(value[key], draw, depth - 1)}
    if depth and isinstance(value, list | tuple) and value:
        i = draw.randrange(len(value))
        items = list(value)
        change = draw.random()
        if change < 0.05:
            del items[i]
        elif change < 0.1:
            items.insert(i, items[draw.randrange(len(items))])
        elif change < 0.15:
            items.reverse()
        else:
            items[i] = _at_random(items[i], draw, depth - 1)
        return items
    return _other(value, draw)


def _changed_keys(value: dict[str, Any], key: str, draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.5:
        value.pop(key)
    else:
        value[draw.choice(("x", key + "s", "name", ""))] = value[key]
    return value


def _other(value: Any, draw: random.Random) -> Any:
    """Something in its place: mostly of the same kind, so that readers get deep."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and draw.random() < 0.7:
        return draw.choice((value + 1, value - 1, 0, -value, value * 1000, 1))
    if isinstance(value, str) and draw.random() < 0.7:
        return draw.choice((value + "x", value[:-1], value.upper(), "lm", "lines", "host"))
    if draw.random() < 0.05:
        deep: Any = value
        for _ in range(draw.choice((5, 600))):
            deep = (deep,)
        return deep
    return draw.choice(VALUES)
