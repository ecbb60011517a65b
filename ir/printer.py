"""Plain data of an entity as text."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowgraph.ir.syntax import INSIDE, NAME_FIELD, PLACE_FIELD, RECORD_FIELD, SINGLE

WIDTH = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def print_entity(keyword: str, plain: Mapping[str, Any], indent: str = "") -> str:
    """The entity, wrapped between fields, then what is inside it in braces."""
    inside = INSIDE.get(keyword, {})
    head = keyword
    if NAME_FIELD.get(keyword) in plain:
        head += f" {_text(plain[NAME_FIELD[keyword]])}"
    fields = [
        _field(name, value)
        for name, value in plain.items()
        if name not in inside and name != NAME_FIELD.get(keyword)
    ]
    blocks = [
        print_entity(word, entity, indent + "  ")
        for name, word in inside.items()
        for entity in _entities(plain, name, word)
    ]
    head = _wrapped([head, *fields, *(["{"] if blocks else [])], indent)
    return "\n".join([head, *blocks, *([f"{indent}}}"] if blocks else [])])


def print_value(value: Any) -> str:
    """Plain data as text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # repr is the shortest text that reads back as the same number.
        return "nan" if math.isnan(value) else repr(float(value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"({', '.join(map(print_value, value))})"
    items = (f"{_name(key)}: {print_value(value[key])}" for key in sorted(value))
    return f"{{{', '.join(items)}}}"


def _wrapped(words: list[str], indent: str) -> str:
    """Words on as few lines as fit in WIDTH; a word that is longer has a line of its own."""
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(f"{indent}    {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def _entities(plain: Mapping[str, Any], name: str, word: str) -> Iterator[Mapping[str, Any]]:
    if name in plain:
        yield from [plain[name]] if word in SINGLE else plain[name]


def _field(name: str, value: Any) -> str:
    if name == PLACE_FIELD:
        return f"at @{_text(value['file'])}:{value['line']}"
    return f"{name}={_record(value) if name == RECORD_FIELD else print_value(value)}"


def _record(plain: Mapping[str, Any]) -> str:
    fields = []
    for field in plain["fields"]:
        dims = ", ".join(map(_dim, field.get("dims", ())))
        fields.append(f"{_name(field['name'])}: {field['dtype']}" + (f"[{dims}]" if dims else ""))
    key = f" by {', '.join(map(_name, plain['key']))}" if "key" in plain else ""
    return f"<{', '.join(fields)}{key}>"


def _dim(dim: Any) -> str:
    if isinstance(dim, int):
        return str(dim)
    return f"{_name(dim['ragged'])}*" if "ragged" in dim else _name(dim["symbol"])


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())
