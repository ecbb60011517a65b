"""Decisions that the user fixed: `{"solver.engines": 2}`, checked against what can be pinned."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Graph

MODES = ("pipeline", "barrier")

AHEAD_LIMIT = 256
"""Steps that samples may be made ahead at most: the proof that nothing waits for ever runs them all
through the graph, and a buffer of more holds nothing that a run wants."""

PROCESS_LIMIT = 1 << 16
"""Processes for stages at most, told before as many are placed."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Checked pins, by "subject.decision"."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def get(self, subject: str, decision: str) -> Any:
        """The pinned value, or None."""
        return self.values.get(f"{subject}.{decision}")


def pinnable(graph: Graph) -> dict[str, str]:
    """What may be pinned in this graph, and the kind of its value: `count`, `count` with the
    most that it may be, or `a|b`."""
    known = {"host.replicas": f"count {PROCESS_LIMIT}", "schedule.mode": "|".join(MODES)}
    known |= {"schedule.chunk": "count", "schedule.unit": "count"}
    known |= {"schedule.ahead": f"count {AHEAD_LIMIT}"}
    for agent in graph.agents:
        known |= {f"{agent.name}.{name}": "count" for name in ("engines", "slots", "engine_tp")}
    for module in graph.modules:
        known |= {f"{module.name}.{name}": "count" for name in ("ranks", "dp", "tp", "pp", "cp")}
    known |= {f"{stage.name}.micro_batch": "count" for stage in graph.by_op("train")}
    return known


def read_pins(graph: Graph, given: Mapping[str, Any]) -> Pins:
    """The graph's own pins, overridden by `given` (values may be text, as on a command line).

    ConfigurationError for a subject or decision that is not there, and for a value out of kind.
    """
    known = pinnable(graph)
    values = {}
    for name, value in {**graph.pins, **given}.items():
        if name not in known:
            raise ConfigurationError(
                f"pin {name!r}: there is no such decision", hint=_near(name, known)
            )
        values[name] = _value(name, known[name], value)
    return Pins(values)


def _near(name: str, known: Mapping[str, str]) -> str:
    subject, _, decision = name.rpartition(".")
    subjects = {key.rpartition(".")[0] for key in known}
    if subject in subjects:
        own = [key for key in known if key.rpartition(".")[0] == subject]
        near = difflib.get_close_matches(name, own, n=1, cutoff=0.0)[0]
        return f"{near} (of {subject}: {', '.join(key.rpartition('.')[2] for key in own)})"
    same = [key for key in known if key.endswith(f".{decision}")] or list(known)
    near = difflib.get_close_matches(name, same, n=1, cutoff=0.0)[0]
    return f"{near} (subjects: {', '.join(sorted(subjects))})"


def _value(name: str, kind: str, value: Any) -> Any:
    what, _, most = kind.partition(" ")
    if what != "count":
        if value in kind.split("|"):
            return value
        raise ConfigurationError(f"pin {name}: expects {kind.replace('|', ' or ')}, got {value!r}")
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        if most and value > int(most):
            raise ConfigurationError(
                f"pin {name}: expects {most} at most, got {value}", hint=f"{name}={most}"
            )
        return value
    raise ConfigurationError(f"pin {name}: expects a whole number of at least 1, got {value!r}")
