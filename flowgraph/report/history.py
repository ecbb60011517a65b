"""What a run wrote down about itself, read back."""

import json
from dataclasses import dataclass
from pathlib import Path

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.progress import EvaluationFinished, StepFinished


@dataclass(frozen=True, slots=True)
class History:
    """Steps and evaluations in the order in which they ended."""

    steps: tuple[StepFinished, ...] = ()
    evaluations: tuple[EvaluationFinished, ...] = ()


def read_history(file: Path) -> History:
    """A run's `metrics.jsonl`; empty when there is none yet.

    A last line that a killed run left half written is skipped. Raises ConfigurationError for any
    other line that is none of a run's.
    """
    if not file.is_file():
        return History()
    lines = file.read_text().split("\n")
    steps: list[StepFinished] = []
    evaluations: list[EvaluationFinished] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            found = json.loads(line)
            kind = found.pop("kind")
            if kind == "step":
                steps.append(StepFinished(**found))
            elif kind == "evaluation":
                evaluations.append(EvaluationFinished(**found))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"{file}:{number} is damaged: {error}") from error
    return History(tuple(steps), tuple(evaluations))
