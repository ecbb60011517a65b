"""What follows when a worker is lost: a pure table, by its kind and how it ended.

A stage worker and an engine hold nothing that cannot be done again from what others hold: they are
replaced alone. A rank holds gradients and optimizer state of its gang, and a gang starts, fails and
restarts as one: the run goes back to its last checkpoint. What the user's code raised would be
raised again: the run ends with it.
"""

import enum
from collections.abc import Mapping


class Loss(enum.Enum):
    """How a worker ended. GONE: killed, exited, or killed for its silence, without a word."""

    GONE = "gone"
    PEER = "peer"  # it says itself that another rank of its gang is gone
    RAISED = "raised"  # the user's code, or ours, raised in it


class Verdict(enum.Enum):
    REPLACE = "replace it alone"
    ROLL_BACK = "roll back to the last checkpoint"
    IGNORE = "nothing is lost with it"
    END = "end the run"


TABLE: Mapping[tuple[str, Loss], Verdict] = {
    ("stage", Loss.GONE): Verdict.REPLACE,
    ("engine", Loss.GONE): Verdict.REPLACE,
    ("gang", Loss.GONE): Verdict.ROLL_BACK,
    ("gang", Loss.PEER): Verdict.ROLL_BACK,
    ("stage", Loss.RAISED): Verdict.END,
    ("engine", Loss.RAISED): Verdict.END,
    ("gang", Loss.RAISED): Verdict.END,
}
"""By (kind of worker, how it ended), while there are restarts left. What is not here cannot be."""

AT_THE_END: Mapping[str, Verdict] = {
    "stage": Verdict.IGNORE,
    "engine": Verdict.IGNORE,
    "gang": Verdict.ROLL_BACK,  # its last weights are not written, or not told
}
"""By kind of a worker that is GONE after all steps: only a gang has anything to say yet."""


def verdict(kind: str, loss: Loss, *, left: int, ending: bool) -> Verdict:
    """left: restarts that may still be made; both kinds of them count. ending: steps are over."""
    found = TABLE[(kind, loss)]
    if ending and loss is Loss.GONE:
        found = AT_THE_END[kind]
    if found in (Verdict.REPLACE, Verdict.ROLL_BACK) and left <= 0:
        return Verdict.END
    return found
