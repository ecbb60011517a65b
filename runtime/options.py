"""What a run is asked for beside its plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """steps: optimizer steps, or None for the graph's own. exact: bit-reproducible.

    run_dir: absolute folder of the run. record: keep the first step's training rows and gradients
    under `run_dir/record`. only: in the reference executor, one sample id to replay.
    checkpoint_every: steps between checkpoints; 0: one every `checkpoint_s` seconds instead.
    restarts: how often lost workers are replaced, from the last checkpoint, before the run ends.
    silence_s: how long a worker that holds work may say nothing; then it is killed, and counts as
    lost. Longer than the slowest single item: a generation, a micro-batch, a call of a function.
    listen: where workers connect: empty is ipc in a private folder, "tcp" loopback with CURVE,
    `tcp://ADDRESS:PORT` that address with CURVE.
    """

    run_dir: str
    steps: int | None = None
    checkpoint_s: float = 30.0
    checkpoint_every: int = 0
    restarts: int = 3
    silence_s: float = 1800.0
    exact: bool = False
    record: bool = False
    only: int | None = None
    listen: str = ""
