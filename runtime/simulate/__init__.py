"""The orchestrator in virtual time: `simulate(plan, steps=..., seed=...)` runs nothing.

The core that a run obeys is driven here too, by workers that only take time. Start with `world.py`;
`stage.py`, `engine.py`, `gang.py` are its workers, `clock.py` its time, `workload.py` its data.
"""

from flowgraph.ir.plan import Plan
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.policy.step_time import StepTimes, estimated
from flowgraph.runtime.simulate.attempts import run_attempts
from flowgraph.runtime.simulate.faults import Fault, Faults
from flowgraph.runtime.simulate.replicas import by_replica, faults_together, times_together
from flowgraph.runtime.simulate.result import SimResult, result_of
from flowgraph.runtime.simulate.workload import Lengths, Workload
from flowgraph.runtime.simulate.world import Setting, Watch

__all__ = ["Fault", "Faults", "Lengths", "SimResult", "simulate"]


def simulate(
    plan: Plan,
    *,
    steps: int,
    seed: int = 0,
    faults: Faults | None = None,
    times: StepTimes | None = None,
    lengths: Lengths | None = None,
    exact: bool = False,
    background: float = 0.0,
    source_size: int = -1,
    start_s: float = 0.0,
    checkpoint_every: int = 0,
    watch: Watch | None = None,
) -> SimResult:
    """Predict a run of the plan. The result is a function of the arguments alone.

    times, lengths: of a measured run, in place of estimates and of what the graph expects.
    background, source_size, start_s: see `Setting`. checkpoint_every: as in `RunOptions`.
    watch: called after each event with the orchestrator's state.
    """
    options = RunOptions(
        run_dir="simulated", steps=steps, exact=exact, checkpoint_every=checkpoint_every
    )
    setting = Setting(
        plan=by_replica(plan),
        options=options,
        times=times_together(plan, times or estimated(plan)),
        workload=Workload(plan, seed, lengths),
        faults=faults_together(plan, faults or Faults()),
        background=background,
        source_size=source_size,
        start_s=start_s,
        watch=watch,
    )
    return result_of(run_attempts(setting))
