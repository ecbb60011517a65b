"""The tables of the language reference, generated from what the verifier and parser read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flowgraph.ir.ops import OPS, REQUIRED, Attribute, Op
from flowgraph.ir.syntax import INSIDE, NAME_FIELD
from flowgraph.ir.types import AGENT_ROW, DTYPES
from flowgraph.ir.verify.cluster import CLUSTER_RULES
from flowgraph.ir.verify.flow import GRAPH_RULES, RULES
from flowgraph.ir.verify.plan import PLAN_RULES
from flowgraph.ir.verify.runnable import RUN_RULES
from flowgraph.ir.verify.schema import SCHEMA_RULES
from flowgraph.ir.verify.training import STEP_RULES
from flowgraph.ir.verify.types import TYPE_RULES


def operations() -> str:
    """One section an operation: what it is, its edges, its attributes, its rules."""
    return "\n\n".join(_operation(name, op) for name, op in OPS.items())


def _operation(name: str, op: Op) -> str:
    edges = f"{_count(op.inputs)} in, {_count(op.outputs)} out"
    where = "a stage worker" if op.host else "the gang of its module"
    function = ", the user's function" if op.function else ""
    lines = [
        f"### `{name}`",
        "",
        f"{op.doc[0].upper()}{op.doc[1:]}. {edges}{function}; runs in {where}.",
    ]
    if op.attributes:
        rows = [_attribute(key, value) for key, value in op.attributes.items()]
        lines += ["", _table(("attribute", "kind", "default", "meaning"), rows)]
    if RULES[name]:
        lines += ["", *(f"- {_said(rule)}" for rule in RULES[name])]
    return "\n".join(lines)


def _attribute(name: str, attribute: Attribute) -> Sequence[str]:
    kind = attribute.kind.replace("|", ", ")
    default = "required" if attribute.default is REQUIRED else f"`{_value(attribute.default)}`"
    return f"`{name}`", kind, default, attribute.doc


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) + "}"
    return f"({', '.join(map(_value, value))})" if isinstance(value, tuple) else str(value)


def _count(bounds: tuple[int, int]) -> str:
    least, most = bounds
    if most < 0:
        return f"{least} or more"
    return str(least) if least == most else f"{least} or {most}"


def rules() -> str:
    """The rules that are of no single operation, and those of plans."""
    parts: Iterable[tuple[str, Iterable[Callable[..., Any]]]] = (
        ("Of every stage", SCHEMA_RULES),
        ("Of a stream's type", TYPE_RULES),
        ("Of the whole graph", (*GRAPH_RULES, *STEP_RULES)),
        ("Of a cluster", CLUSTER_RULES),
        ("Of a plan", PLAN_RULES),
        ("Of a plan that is run, until runs do more", RUN_RULES),
    )
    return "\n\n".join(
        "\n".join([f"**{head}**", "", *(f"- {_said(rule)}" for rule in table)])
        for head, table in parts
    )


def _said(rule: Callable[..., Any]) -> str:
    """A rule's docstring is its sentence in the reference."""
    return " ".join((rule.__doc__ or "").split())


def entities() -> str:
    """Which entities the text form has, and what stands inside which."""
    words = dict.fromkeys(
        [*INSIDE, *(word for inner in INSIDE.values() for word in inner.values())]
    )
    rows = [
        (
            f"`{word}`",
            f"`{NAME_FIELD[word]}`" if word in NAME_FIELD else "none",
            ", ".join(f"`{inner}`" for inner in INSIDE.get(word, {}).values()) or "nothing",
        )
        for word in words
    ]
    return _table(("keyword", "the bare name is its", "inside it"), rows)


def types() -> str:
    """Dtypes, and the record that agents make."""
    names = ", ".join(f"`{dtype}`" for dtype in DTYPES)
    rows = [(f"`{field.name}`", f"`{str(field).partition(': ')[2]}`") for field in AGENT_ROW.fields]
    return f"Dtypes: {names}.\n\nA row of an agent:\n\n" + _table(("field", "type"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "operations": operations,
    "rules": rules,
    "entities": entities,
    "types": types,
}


def refresh(page: str) -> str:
    """The page with the text between `<!-- table: NAME -->` and `<!-- end -->` made anew."""
    for name, make in TABLES.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(start)
        if found:
            page = before + start + make() + "\n" + end + rest.partition(end)[2]
    return page
