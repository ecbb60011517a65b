"""Text to plain data, by recursive descent, with the place of every value.

Knows the syntax only: what fields an entity has is checked by `from_plain`, whose faults are traced
back to a place through `Document.places`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from flowgraph.ir.data import DEEPEST, Path
from flowgraph.ir.lexer import Source, Token
from flowgraph.ir.syntax import INSIDE, NAME_FIELD, PLACE_FIELD, RECORD_FIELD, SINGLE

WORDS: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "nan": math.nan,
    "inf": math.inf,
}
LONGEST_NUMBER = 400
"""Digits; a longer number is refused, since reading one takes quadratic time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One entity read. places: offsets in the source, by path."""

    keyword: str
    start: int
    plain: dict[str, Any]
    places: Mapping[Path, int]

    def place(self, path: Path) -> int:
        """Offset of the value at `path`, or of the nearest one around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, self.start)


class Parser:
    """Reads one document; use once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = list(source.tokens())
        self._next = 0
        self._places: dict[Path, int] = {}

    def document(self, keywords: tuple[str, ...]) -> Document:
        """The only entity of the source, of one of the keywords. Raises ParseError."""
        start = self._peek().start
        expected = f"one of {', '.join(keywords)}"
        token = self._take("name", expected)
        keyword = token.text
        if keyword not in keywords:
            self._fail(token, f"expects {expected}, got {keyword!r}")
        plain = self._entity(keyword, ())
        self._take("end", "the end of the text")
        return Document(keyword=keyword, start=start, plain=plain, places=self._places)

    def _entity(self, keyword: str, path: Path) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        self._places[path] = self._tokens[self._next - 1].start
        if self._peek().kind == "text" and keyword in NAME_FIELD:
            name = NAME_FIELD[keyword]
            self._places[(*path, name)] = self._peek().start
            plain[name] = self._text()
        while self._peek().kind == "name" and self._is_field():
            self._field(keyword, plain, path)
        if self._peek().kind == "{":
            self._inside(keyword, plain, path)
        for name, word in INSIDE.get(keyword, {}).items():
            if word not in SINGLE:
                plain.setdefault(name, [])
        return plain

    def _is_field(self) -> bool:
        after = self._tokens[self._next + 1].kind
        return after == "=" or (self._peek().text == PLACE_FIELD and after == "@")

    def _field(self, keyword: str, plain: dict[str, Any], path: Path) -> None:
        token = self._take("name", "a field")
        if token.text in plain:
            self._fail(token, f"field {token.text!r} is given twice")
        here = (*path, token.text)
        self._places[here] = token.start
        if token.text == PLACE_FIELD and self._peek().kind == "@":
            plain[token.text] = self._location()
            return
        self._take("=", "=")
        if token.text in INSIDE.get(keyword, {}):
            word = INSIDE[keyword][token.text]
            self._fail(token, f"{token.text!r} is written as `{word} ...` in braces")
        self._places[here] = self._peek().start
        if token.text == RECORD_FIELD and self._peek().kind == "<":
            plain[token.text] = self._record(here)
        else:
            plain[token.text] = self._value(here, 0)

    def _inside(self, keyword: str, plain: dict[str, Any], path: Path) -> None:
        self._take("{", "{")
        words = {word: name for name, word in INSIDE.get(keyword, {}).items()}
        while self._peek().kind != "}":
            token = self._take("name", f"one of {', '.join(words)}, or }}" if words else "}")
            if token.text not in words:
                expected = ", ".join(words) or "nothing"
                self._fail(token, f"{keyword} has {expected} inside, got {token.text!r}")
            name = words[token.text]
            if token.text not in SINGLE:
                things = plain.setdefault(name, [])
                things.append(self._entity(token.text, (*path, name, len(things))))
            elif name in plain:
                self._fail(token, f"{keyword} has one {token.text}, here is a second")
            else:
                plain[name] = self._entity(token.text, (*path, name))
        self._take("}", "}")

    def _value(self, path: Path, depth: int) -> Any:
        token = self._peek()
        if depth > DEEPEST:
            self._fail(token, f"nested more than {DEEPEST} levels deep")
        if token.kind == "(":
            return self._tuple(path, depth)
        if token.kind == "{":
            return self._map(path, depth)
        if token.kind == "text":
            return self._text()
        if token.kind == "number":
            return self._number()
        if token.kind == "name" and token.text in WORDS:
            self._next += 1
            return WORDS[token.text]
        self._fail(token, f"expects a value, got {token.text or 'the end'!r}")

    def _tuple(self, path: Path, depth: int) -> tuple[Any, ...]:
        self._take("(", "(")
        found: list[Any] = []
        while self._peek().kind != ")":
            here = (*path, len(found))
            self._places[here] = self._peek().start
            found.append(self._value(here, depth + 1))
            if self._peek().kind != ")":
                self._take(",", "a comma or )")
        self._take(")", ")")
        return tuple(found)

    def _map(self, path: Path, depth: int) -> dict[str, Any]:
        self._take("{", "{")
        found: dict[str, Any] = {}
        while self._peek().kind != "}":
            token = self._peek()
            key = self._name("a key")
            if key in found:
                self._fail(token, f"key {key!r} is given twice")
            self._take(":", ":")
            self._places[(*path, key)] = self._peek().start
            found[key] = self._value((*path, key), depth + 1)
            if self._peek().kind != "}":
                self._take(",", "a comma or }")
        self._take("}", "}")
        return found

    def _location(self) -> dict[str, Any]:
        self._take("@", "@")
        token = self._peek()
        file = self._text()
        self._take(":", ":")
        line = self._number()
        if not isinstance(line, int):
            self._fail(token, "expects a line number")
        return {"file": file, "line": line}

    def _record(self, path: Path) -> dict[str, Any]:
        self._take("<", "<")
        record: dict[str, Any] = {"fields": []}
        while self._peek().kind not in (">", "end") and not self._at_key():
            here = (*path, "fields", len(record["fields"]))
            self._places[here] = self._peek().start
            field: dict[str, Any] = {"name": self._name("a field's name")}
            self._take(":", ":")
            self._places[(*here, "dtype")] = self._peek().start
            field["dtype"] = self._take("name", "a dtype").text
            if self._peek().kind == "[":
                field["dims"] = self._dims()
            record["fields"].append(field)
            if self._peek().kind != ">" and not self._at_key():
                self._take(",", "a comma, by or >")
        if self._at_key():
            record["key"] = self._key()
        self._take(">", ">")
        return record

    def _at_key(self) -> bool:
        """Whether `by` comes next, and not a field of that name."""
        return self._peek().text == "by" and self._tokens[self._next + 1].kind != ":"

    def _key(self) -> list[str]:
        self._take("name", "by")
        key: list[str] = []
        while self._peek().kind != ">":
            key.append(self._name("a key field"))
            if self._peek().kind != ">":
                self._take(",", "a comma or >")
        return key

    def _dims(self) -> list[Any]:
        self._take("[", "[")
        dims: list[Any] = []
        while self._peek().kind != "]":
            if self._peek().kind == "number":
                dims.append(self._number())
            else:
                name = self._name("a dim")
                ragged = self._peek().kind == "*"
                self._next += ragged
                dims.append({"ragged" if ragged else "symbol": name})
            if self._peek().kind != "]":
                self._take(",", "a comma or ]")
        self._take("]", "]")
        return dims

    def _name(self, what: str) -> str:
        if self._peek().kind == "text":
            return self._text()
        return self._take("name", what).text

    def _text(self) -> str:
        token = self._take("text", "text in quotes")
        try:
            text = json.loads(token.text)
        except ValueError as error:
            self._fail(token, f"not a legal text: {error}")
        assert isinstance(text, str)
        return text

    def _number(self) -> int | float:
        token = self._take("number", "a number")
        if len(token.text) > LONGEST_NUMBER:
            self._fail(token, f"a number of more than {LONGEST_NUMBER} digits")
        if token.text.lstrip("-").isdigit():
            return int(token.text)
        return float(token.text)

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self, kind: str, what: str) -> Token:
        token = self._peek()
        if token.kind != kind:
            self._fail(token, f"expects {what}, got {token.text or 'the end'!r}")
        self._next += 1
        return token

    def _fail(self, token: Token, what: str) -> NoReturn:
        raise self._source.fault(token.start, what)
