"""What `--json` prints and `result.json` keeps: the run's result as plain data."""

import math
from collections.abc import Mapping
from typing import Any

from flowgraph.runtime.progress import RunResult


def result_object(
    result: RunResult, *, plan_hash: str, wall_s: float, run_dir: str
) -> dict[str, Any]:
    """Keys as the manual of the command line lists them; figures that are no number are null.

    `eval` holds the last figures of all evaluations: by the figure's own name where one evaluation
    has it, else by `<evaluation>/<figure>`. `evaluations` holds the same, by evaluation.
    """
    found: dict[str, Any] = {
        "steps": result.steps,
        "wall_s": round(wall_s, 3),
        "plan_hash": plan_hash,
        "workers": [dict(worker) for worker in result.workers],
        "samples": result.samples,
        "quarantined": result.quarantined,
        "updates": result.updates,
        "metrics": result.metrics,
        "eval": _flat(result.evaluations),
        "evaluations": result.evaluations,
        "weights_digest": result.weights_digest,
        "initial_digest": result.initial_digest,
        "run_dir": run_dir,
    }
    plain: dict[str, Any] = _plain(found)
    return plain


def _flat(evaluations: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    names = [name for figures in evaluations.values() for name in figures]
    return {
        name if names.count(name) == 1 else f"{evaluation}/{name}": value
        for evaluation, figures in evaluations.items()
        for name, value in figures.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
