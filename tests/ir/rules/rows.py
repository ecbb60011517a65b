"""Episodes, groups of rows, and the credit given in them."""

from tests.ir.rules.changes import INT, Cases, lacking, stage, typed
from tests.passes.graphs import marl

CASES: Cases = {
    "credit_reads_rewards": {
        "credit without reward": lambda: lacking(
            lacking(marl(), "solver.groups", "reward"), "games.solver", "reward"
        ),
    },
    "credit_is_by_key": {
        "credit over a whole step": lambda: stage(
            marl(), "train-solver.credit", attributes={"group": ()}
        ),
        "credit's group": lambda: stage(
            marl(), "train-solver.credit", attributes={"group": ("samples",)}
        ),
    },
    "credit_makes_advantages": {
        "advantage": lambda: lacking(marl(), "train-solver.credit", "advantage"),
    },
    "sizes_are_counts": {
        "credit's size": lambda: stage(marl(), "train-solver.credit", attributes={"size": -1}),
        "group's size": lambda: marl(size=-1),
    },
    "group_is_by_key": {
        "group by a value": lambda: stage(
            marl(), "solver.groups", attributes={"by": ("sample", "reward")}
        ),
    },
    "group_ends_with_its_sample": {
        "group's first key": lambda: stage(
            marl(), "solver.groups", attributes={"by": ("trajectory",)}
        ),
    },
    "agents_play": {
        "nobody plays": lambda: stage(marl(), "games", agents=()),
    },
    "episodes_are_counted": {
        "trajectories": lambda: marl(tries=0),
    },
    "episodes_have_time": {
        "timeout": lambda: stage(marl(), "games", attributes={"timeout_s": 0.0}),
    },
    "episodes_make_rows": {
        "rows": lambda: typed(marl(), "games.solver", INT),
    },
    "outputs_are_of_agents": {
        "output of nobody": lambda: stage(marl(), "games", agents=("solver",)),
    },
}
