"""What the pages say is there: links, files, commands, code blocks, options, exemplars."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import flowgraph as fg
from flowgraph.cli.main import COMMANDS, flowgraph
from flowgraph.ir.verify import verify_flow

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = {
    *("flowgraph", "ir", "passes", "runtime", "kernels", "tests"),
    *("benchmarks", "tools", "docs", "examples", "constraints", "adr"),
}

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`([^`\n]+)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Of all headings, as hosts of Markdown make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}"


def paths_named_in(page: Path) -> Iterator[str]:
    """Quoted words that look like a path of this repository; patterns and placeholders do not."""
    for text in QUOTED.findall(page.read_text()):
        known = text.partition("/")[0] in FOLDERS and "/" in text
        if known and re.fullmatch(r"[\w./-]+", text):
            yield text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    for text in paths_named_in(page):
        places = (ROOT / text, ROOT / "docs" / text)
        made = text.startswith("docs/results")  # by `make learn`
        assert made or any(place.exists() for place in places), f"{name_of(page)} names {text}"


def test_the_tour_names_exemplars() -> None:
    named = set(paths_named_in(ROOT / "docs" / "tour.md"))
    assert {"passes/simplify.py", "kernels/segments.py", "runtime/messages.py"} <= named


def test_targets_that_pages_name_are_in_the_makefile() -> None:
    declared = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        named = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= declared, name_of(page)
    assert {"setup", "test", "demo", "demo-vlm", "learn", "bench", "lint"} <= declared


def test_files_that_makefile_targets_run_are_there() -> None:
    text = (ROOT / "Makefile").read_text()
    for file in re.findall(r"(?:examples|tools|constraints)/[\w.]+", text):
        assert (ROOT / file).exists(), file
    for module in re.findall(r"-m (benchmarks[\w.]*)", text):
        path = ROOT / module.replace(".", "/")
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), module


@pytest.mark.parametrize("page", [README], ids=name_of)
def test_python_blocks_compile(page: Path) -> None:
    blocks = CODE.findall(page.read_text())
    assert blocks
    for block in blocks:
        compile(block, name_of(page), "exec")


def test_the_graph_of_the_readme_builds_and_is_short(tmp_path: Path) -> None:
    block = CODE.findall(README.read_text())[0]
    (tmp_path / "sorting.py").write_text(block)
    graph = fg.load_graph(str(tmp_path / "sorting.py"), {"batch": "32"})
    verify_flow(graph)
    body = block.partition("def build")[2].splitlines()[1:]
    assert graph.stage("train-lm").attributes["batch"] == 32
    assert len(body) < 10


def test_the_page_of_the_command_line_names_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    context = click.Context(flowgraph)
    commands = [flowgraph.get_command(context, name) for name in COMMANDS]
    missing = [f"flowgraph {name}" for name in COMMANDS if f"flowgraph {name}" not in text]
    for command in (flowgraph, *commands):
        assert command is not None
        options = [param for param in command.params if isinstance(param, click.Option)]
        missing += [
            name
            for option in options
            if not option.hidden
            for name in option.opts
            if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
        ]
    assert not missing


def test_decisions_are_numbered_listed_and_say_what_would_reverse_them() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    files = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    for number, file in enumerate(files, start=1):
        text = file.read_text()
        assert file.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number:04d}: ")
        assert f"({file.name})" in index
        for part in ("**Context.**", "**Decision", "**Would reverse it.**"):
            assert part in text, f"{file.name} lacks {part}"
