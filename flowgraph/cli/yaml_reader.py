"""YAML whose every value knows its line, so that a mistake in a file is told where it is."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flowgraph.dsl.location import shown
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.location import Location


@dataclass(frozen=True, slots=True)
class Located:
    """A node of a YAML file. what: how messages call it, `node 'n0'`."""

    node: yaml.Node
    file: str
    what: str

    @property
    def at(self) -> Location:
        return Location(self.file, self.node.start_mark.line + 1)

    def refuse(self, problem: str, hint: str | None = None) -> ConfigurationError:
        """The error to raise for this place."""
        return ConfigurationError(f"{self.what}: {problem}", at=self.at, hint=hint)

    def value(self) -> Any:
        """A scalar as YAML reads it; refuses lists and mappings."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.refuse(f"expects one value, got a {self._kind()}")
        return yaml.SafeLoader("").construct_object(self.node)

    def text(self) -> str:
        value = self.value()
        if not isinstance(value, str) or not value:
            raise self.refuse(f"expects a text, got {value!r}")
        return value

    def count(self, least: int = 1) -> int:
        value = self.value()
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.refuse(f"expects a whole number of at least {least}, got {value!r}")
        return value

    def flag(self) -> bool:
        value = self.value()
        if not isinstance(value, bool):
            raise self.refuse(f"expects true or false, got {value!r}")
        return value

    def items(self) -> Iterator["Located"]:
        """A list's entries."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refuse(f"expects a list, got a {self._kind()}")
        for i, node in enumerate(self.node.value):
            yield Located(node, self.file, f"{self.what}[{i}]")

    def entries(self) -> dict[str, "Located"]:
        """A mapping's entries by key; refuses a key that stands twice."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse(f"expects a mapping, got a {self._kind()}")
        found: dict[str, Located] = {}
        for key, node in self.node.value:
            name = str(key.value)
            if name in found:
                twice = Located(key, self.file, self.what)
                raise twice.refuse(f"'{name}' stands here and at line {found[name].at.line}")
            found[name] = Located(node, self.file, f"{self.what}: {name}")
        return found

    def fields(self, *, required: Iterable[str], optional: Iterable[str]) -> dict[str, "Located"]:
        """`entries` of known keys; refuses others, naming the nearest, and misses none."""
        found = self.entries()
        required = tuple(required)
        known = (*required, *optional)
        assert isinstance(self.node, yaml.MappingNode)
        for key, _ in self.node.value:
            name = str(key.value)
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                listing = f"the keys are {', '.join(known)}"
                raise Located(key, self.file, self.what).refuse(
                    f"unknown key '{name}'", hint=f"'{near[0]}'; {listing}" if near else listing
                )
        for name in required:
            if name not in found:
                raise self.refuse(f"has no '{name}'", hint=f"{name}: ...")
        return found

    def _kind(self) -> str:
        if isinstance(self.node, yaml.MappingNode):
            return "mapping"
        return "list" if isinstance(self.node, yaml.SequenceNode) else "single value"


def read_yaml(file: Path, what: str) -> Located:
    """The file's one document. Raises ConfigurationError when it is not there or is no YAML."""
    name = shown(str(file))
    try:
        text = file.read_text()
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{name} is no text, so no {what}") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"not YAML: {error.problem}", at=Location(name, line)) from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name} is not YAML: {error}") from error
    if node is None:
        raise ConfigurationError(f"{name} is empty, so no {what}")
    return Located(node, name, what)
