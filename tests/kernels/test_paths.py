"""Which path runs, and when Triton is imported."""

import subprocess
import sys

import torch

from flowgraph.kernels.backend import path
from tests.kernels.conftest import INTERPRETED

EVERY_ENTRY_POINT = """
import sys, torch
import flowgraph.kernels as k
offsets = torch.tensor([0, 2, 5])
values = torch.randn(5, 4, requires_grad=True)
index = torch.tensor([1, 0])
packed = k.pack({"x": k.Ragged(values, offsets)}, k.PackPlan.of([[1, 0]]))
k.unpack(packed["x"], packed.layout).values.sum().backward()
k.scatter_rows(k.gather_rows(values, index), index, 5).sum().backward()
k.merge_features(values, torch.zeros(2, 4), index).sum().backward()
k.gather_logprobs(values, torch.zeros(5).long())[0].sum().backward()
k.linear_logprobs(values, torch.ones(3, 4), torch.zeros(5).long())[0].sum().backward()
k.segment_reduce(values, offsets).sum().backward()
k.group_statistics(values[:, 0].detach(), offsets)
buffer, digest = k.flatten({"x": values})
k.unflatten_(buffer, {"x": torch.zeros(5, 4)}, expect=digest)
print("triton" in sys.modules)
"""


def test_cpu_tensors_take_the_reference_unless_triton_interprets() -> None:
    for kernel in ("pack", "rows", "merge", "logprobs", "segments", "flat"):
        side = "device" if INTERPRETED else "reference"
        module = path(kernel, torch.zeros(1))
        assert module.__name__ == f"flowgraph.kernels.{side}.{kernel}"


def test_no_entry_point_imports_triton_for_cpu_tensors() -> None:
    command = [sys.executable, "-c", EVERY_ENTRY_POINT]
    done = subprocess.run(command, capture_output=True, text=True, env={}, check=True)
    assert done.stdout.strip() == "False"
