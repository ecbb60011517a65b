"""Every kernel test once more, in a process where Triton interprets what would be launched."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_the_triton_kernels_pass_the_kernel_tests_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu"]
    done = subprocess.run(
        [*command, str(HERE)],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
