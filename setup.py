"""Maps the root folders into one package: `ir/` is installed as `flowgraph.ir`, and so on."""

from setuptools import find_packages, setup

SUBPACKAGES = ("ir", "passes", "runtime", "kernels")

setup(
    packages=[
        *find_packages(
            include=["flowgraph", "flowgraph.*"],
            exclude=[f"flowgraph.{name}{rest}" for name in SUBPACKAGES for rest in ("", ".*")],
        ),
        *(f"flowgraph.{name}" for name in SUBPACKAGES),
        *(f"flowgraph.{name}.{child}" for name in SUBPACKAGES for child in find_packages(name)),
    ],
    package_dir={
        "flowgraph": "flowgraph",
        **{f"flowgraph.{name}": name for name in SUBPACKAGES},
    },
)
