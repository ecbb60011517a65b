"""Which entities the text form has, and how fields become entities."""

from collections.abc import Mapping

INSIDE: Mapping[str, Mapping[str, str]] = {
    "graph": {"modules": "module", "agents": "agent", "stages": "stage", "streams": "stream"},
    "cluster": {"kinds": "kind", "nodes": "node"},
    "plan": {
        "graph": "graph",
        "cluster": "cluster",
        "schedule": "schedule",
        "prediction": "prediction",
        "groups": "group",
        "tasks": "task",
        "channels": "channel",
        "decisions": "decision",
        "rooms": "room",
        "balance": "balance",
        "neighbours": "neighbour",
    },
}
"""By entity: fields that are printed as entities inside it, with their keyword."""

SINGLE = ("graph", "cluster", "schedule", "prediction", "balance")
"""Keywords of fields that hold one entity rather than a tuple."""

NAME_FIELD: Mapping[str, str] = {
    **dict.fromkeys(
        ("graph", "module", "agent", "stage", "stream", "cluster", "kind", "node", "group", "task"),
        "name",
    ),
    "channel": "stream",
    "room": "group",
    "neighbour": "kind",
}
"""The field that stands bare behind the keyword."""

RECORD_FIELD = "type"
PLACE_FIELD = "at"
"""Fields with a syntax of their own: `type=<...>` of a stream, `at @"file":line` of any."""
