"""What a run is asked for beside its plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """steps: optimizer steps, or None for the graph's own. exact: bit-reproducible.

    run_dir: absolute folder of the run. record: keep the first step's training rows and gradients
    under `run_dir/record`. only: in the reference executor, one sample id to replay.
    """

    run_dir: str
    steps: int | None = None
    exact: bool = False
    record: bool = False
    only: int | None = None
