"""What a run is asked for beside its plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """steps: optimizer steps, or None for the graph's own. exact: bit-reproducible.

    run_dir: absolute folder of the run. record: keep the first step's training rows and gradients
    under `run_dir/record`. only: in the reference executor, one sample id to replay.
    checkpoint_every: steps between checkpoints; 0: one every `checkpoint_s` seconds instead.
    restarts: how often lost workers are replaced, alone or with all others from the last
    checkpoint, before the run ends.
    silence_s: how long a worker that holds work may say nothing; then it is killed, and counts as
    lost. Longer than the slowest single item: a generation, a micro-batch, a call of a function.
    liveness_s: how long a process may give no sign of life (a heartbeat) before it is taken for
    stopped, killed, and counts as lost; 0: for ever.
    retries: how often work is tried again when the user's code raised in it. quarantine: the most
    samples whose work raised all the same that are put aside; one more ends the run.
    spill_bytes: the most that a worker may keep on disk of what finds no room in its pool; 0: it
    waits for room. spill_dir: where; empty is the run's scratch folder.
    fetch_s: how long a fetch of another node's block may make no progress before its reader counts
    as lost, and the porters are replaced.
    listen: where workers connect: empty is ipc in a private folder, "tcp" loopback with CURVE,
    `tcp://ADDRESS:PORT` that address with CURVE.
    """

    run_dir: str
    steps: int | None = None
    checkpoint_s: float = 30.0
    checkpoint_every: int = 0
    restarts: int = 3
    silence_s: float = 1800.0
    liveness_s: float = 15.0
    retries: int = 1
    quarantine: int = 0
    spill_bytes: int = 0
    spill_dir: str = ""
    fetch_s: float = 20.0
    exact: bool = False
    record: bool = False
    only: int | None = None
    listen: str = ""
