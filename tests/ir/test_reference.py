"""The language reference says what the code does."""

from pathlib import Path

import pytest

from flowgraph.ir.ops import OPS
from flowgraph.ir.reference import TABLES, refresh
from flowgraph.ir.text import parse_graph

PAGE = Path(__file__).parents[2] / "docs" / "ir.md"


def test_the_tables_of_the_reference_are_up_to_date(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(refresh(page))
    else:
        assert refresh(page) == page, "pytest tests/ir/test_reference.py --update-golden"
    assert all(f"<!-- table: {name} -->" in page for name in TABLES)


def test_every_operation_and_attribute_is_explained() -> None:
    text = refresh(PAGE.read_text())
    for name, op in OPS.items():
        assert f"### `{name}`" in text
        assert all(f"| `{attribute}` |" in text for attribute in op.attributes)


def test_the_example_of_the_reference_is_legal_text() -> None:
    example = PAGE.read_text().split("```")[1]
    assert parse_graph(example).stage("images").attributes == {"dim": "images"}
