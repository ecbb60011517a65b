"""Where the kernel tests run, and what uninitialised memory holds while they do.

The same tests run three times: on the CPU path; in a process of their own with TRITON_INTERPRET=1,
where the very same calls launch the Triton kernels in its interpreter (`test_interpreter.py`
starts it); and with `-m gpu` on an accelerator. An own process, because Triton decides at its
import whether it interprets, and every other test wants the fast CPU path.
"""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# These start processes of their own, or say nothing about kernels.
collect_ignore = (
    ["test_interpreter.py", "test_resources.py", "test_cases.py"] if INTERPRETED else []
)

# The interpreter takes about 1 ms a program, so it sees fewer examples.
hypothesis.settings.register_profile(
    "kernels",
    max_examples=8 if INTERPRETED else 40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of the test's tensors."""
    if request.param == "cpu":
        return torch.device("cpu")
    if not torch.accelerator.is_available():
        pytest.skip("no accelerator")
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    return accelerator


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """Fills what `torch.empty` returns with NaN or the largest integer: what a kernel leaves
    unwritten then differs from what it should hold."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
