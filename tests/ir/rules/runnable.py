"""What a run does not do yet."""

from flowgraph.ir.plan import Layout
from tests.ir.rules.changes import stage
from tests.ir.rules.plan_changes import MARL, SHARED, VLM, PlanCases, group, made
from tests.passes.graphs import laptop, marl

CASES: PlanCases = {
    "layouts_split_the_data": {
        "split gang": lambda: group(VLM, "lm.gang", layout=Layout(dp=2, tp=2, pp=2)),
        "split engine": lambda: group(MARL, "solver.engine", layout=Layout(tp=2)),
    },
    "activations_are_kept": {
        "recomputed": lambda: group(VLM, "lm.gang", layout=Layout(recompute=True)),
    },
    "devices_are_not_shared": {"turns": lambda: SHARED},
    "weights_are_current": {
        "late weights": lambda: made(
            stage(marl(), "train-solver", attributes={"staleness": 2}), laptop()
        ),
    },
}
