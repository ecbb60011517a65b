"""`python -m tests.runs.reference_process PLAN FOLDER STEPS EXACT`: digests as a line of JSON.

A process of its own, since exact mode changes torch's settings for good.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flowgraph.ir.binary import decode, encode
from flowgraph.ir.plan import Plan
from flowgraph.runtime.options import RunOptions


def reference(
    plan: Plan,
    folder: Path,
    *,
    steps: int,
    exact: bool,
    record: bool = False,
    quarantine: int = 0,
    quarantined: Sequence[int] = (),
) -> dict[str, Any]:
    """Run the reference executor; digests by module, `initial` and `trained`, and `samples`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".fgplan")
    file.write_bytes(encode(plan))
    options = {"steps": steps, "exact": exact, "record": record}
    options |= {"quarantine": quarantine, "retries": 0}
    asked = json.dumps([options, list(quarantined)])
    command = [sys.executable, "-m", "tests.runs.reference_process", str(file), str(folder), asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    from flowgraph.runtime.reference.executor import run_reference

    file, folder, asked = sys.argv[1:]
    plan = decode(Path(file).read_bytes())
    wanted, quarantined = json.loads(asked)
    options = RunOptions(run_dir=folder, **wanted)
    result = run_reference(plan, options, lambda _: None, quarantined)
    digests = {"initial": dict(result.initial_digest), "trained": dict(result.weights_digest)}
    print(json.dumps({**digests, "samples": dict(result.samples)}))


if __name__ == "__main__":
    main()
