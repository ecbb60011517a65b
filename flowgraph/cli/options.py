"""Options and arguments that several commands share, and how their text is read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from flowgraph.cli.quantities import EXAMPLES, amount
from flowgraph.ir.errors import ConfigurationError


def size(text: str) -> int:
    """Bytes of memory or disk, as an option's type: `20 GB`, `512MiB`, a bare number of bytes."""
    try:
        return int(amount(int(text) if text.isdigit() else text, "B"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no size such as {EXAMPLES['B']!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to load, as it was typed. settings, pins: the texts of `--set` and `--pin`; costs: the
    file of `--costs`."""

    target: str
    settings: Sequence[str] = field(default=())
    cluster: str | None = None
    pins: Sequence[str] = field(default=())
    costs: str | None = None


def graph_options(command: Any) -> Any:
    """`--set`, `--cluster` and `--pin`."""
    for option in (
        click.option(
            "--pin",
            "pins",
            multiple=True,
            metavar="SUBJECT.DECISION=VALUE",
            help="Fix a decision of the compiler's, for instance solver.engines=2.",
        ),
        click.option(
            "--cluster",
            metavar="FILE",
            help="YAML file of what the plan may use (default: the graph's own, or this machine).",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of the graph's build function.",
        ),
    ):
        command = option(command)
    return command


def costs_option(command: Any) -> Any:
    """`--costs`, of what a graph is planned by."""
    option = click.option(
        "--costs",
        metavar="FILE",
        help="What `flowgraph profile` measured, in place of estimates.",
    )
    return option(command)


def read_settings(given: Sequence[str]) -> dict[str, str]:
    """`["batch=4"]` as `{"batch": "4"}`. Raises ConfigurationError for anything else."""
    return _pairs(given, "--set", "--set batch=16")


def read_pin_texts(given: Sequence[str]) -> dict[str, Any]:
    """`["solver.engines=2"]` as `{"solver.engines": 2}`: values are YAML scalars."""
    texts = _pairs(given, "--pin", "--pin solver.engines=2")
    return {name: _scalar(text) for name, text in texts.items()}


def _pairs(given: Sequence[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"{option} {text}: expects KEY=VALUE", hint=example)
        if found.get(name, value) != value:
            raise ConfigurationError(
                f"{option} {name} is given twice: {found[name]!r} and {value!r}"
            )
        found[name] = value
    return found


def _scalar(text: str) -> Any:
    """int, float or bool where YAML reads one, else the text."""
    import yaml  # 30 ms, for the few who pin

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, bool | int | float) else text
