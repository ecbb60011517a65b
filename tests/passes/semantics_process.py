"""`python -m tests.passes.semantics_process FOLDER PLAN...`: digests of each plan's weights.

Each is run by the reference executor; prints a JSON list of {module: digest}. A process of its
own, since exact mode changes torch's settings for good.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    from flowgraph.ir.binary import decode
    from flowgraph.runtime.options import RunOptions
    from flowgraph.runtime.reference.executor import run_reference

    folder, *files = sys.argv[1:]
    found = []
    for i, file in enumerate(files):
        options = RunOptions(run_dir=f"{folder}/run-{i}", exact=True)
        result = run_reference(decode(Path(file).read_bytes()), options, lambda _: None)
        found.append(dict(result.weights_digest))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
