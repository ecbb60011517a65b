"""What exact mode assumes of its process, set for one test and put back."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def exact_process() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
