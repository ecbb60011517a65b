"""Graph files name models, algorithms and tokenizers without importing torch."""

import subprocess
import sys

import pytest

from flowgraph.models import describe


@pytest.mark.parametrize(
    "module",
    [
        "flowgraph.models",
        "flowgraph.models.descriptions",
        "flowgraph.algorithms.grpo",
        "flowgraph.algorithms.rloo",
        "flowgraph.algorithms.ppo",
        "flowgraph.algorithms.cross_entropy",
        "flowgraph.tokenizers",
    ],
)
def test_importing_it_leaves_torch_alone(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_module_we_did_not_write_is_described_as_generic() -> None:
    described = describe("my.models:reward_model", {"width": 3})
    assert described == {"kind": "generic", "parameters": None}


def test_a_parameter_the_factory_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="depth"):
        describe("flowgraph.models.factories:vit", {"layers": 1, "width": 8, "depth": 2})
