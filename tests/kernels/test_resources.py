"""The kernels compiled for devices that are not there: limits hold, the committed table is true."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from flowgraph.kernels import resources
from flowgraph.kernels.resources import Resources

GOOD = Resources(
    kernel="move_rows",
    variant="gather",
    target="sm_90",
    registers=32,
    shared=0,
    spills=0,
    local=0,
    load=16,
    store=16,
    asked=(16, 16),
)


def test_every_variant_compiles_within_limits_and_as_the_committed_table_says() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "flowgraph.kernels.resources", "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_kernel_has_variants_and_every_target_a_line() -> None:
    lines = resources.TABLE.read_text().splitlines()
    for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
        kernels = {line.split(" | ")[0] for line in lines if f"| {target} |" in line}
        assert len(kernels) == 11


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (replace(GOOD, spills=2), "2 registers spilled"),
        (replace(GOOD, local=8), "8 bytes local"),
        (replace(GOOD, registers=129), "129 registers, limit 128"),
        (replace(GOOD, load=8), "loads 8 and stores 16 bytes at once, expects 16 and 16"),
        (replace(GOOD, store=4), "loads 16 and stores 4 bytes"),
    ],
)
def test_a_broken_limit_is_a_sentence(broken: Resources, message: str) -> None:
    assert GOOD.faults() == []
    (fault,) = broken.faults()
    assert fault.startswith("move_rows (gather) on sm_90: ")
    assert message in fault


def test_a_table_that_drifted_fails_the_check() -> None:
    true = resources.table([GOOD])
    assert resources.problems([GOOD], true) == []
    (fault,) = resources.problems([replace(GOOD, registers=33)], true)
    assert "RESOURCES.md differs" in fault
    assert resources.problems([GOOD], "") != []
    # other versions of Triton allot other registers; limits hold for them all the same
    other = true.replace("Triton ", "Triton 0.")
    assert resources.problems([replace(GOOD, registers=33)], other) == []
    assert len(resources.problems([replace(GOOD, spills=1)], other)) == 1


def test_an_argument_of_one_which_triton_makes_a_constant_compiles() -> None:
    found = resources.variants(("rows", "merge"))
    for variant in found[:1] + found[-1:]:
        numbers = [name for name, kind in variant.signature.items() if not kind.startswith("*")]
        special = replace(
            variant,
            signature={n: kind for n, kind in variant.signature.items() if n not in numbers},
            constexprs={**variant.constexprs, **dict.fromkeys(numbers, 1)},
        )
        assert resources.measure(special, "sm_90").spills == 0
