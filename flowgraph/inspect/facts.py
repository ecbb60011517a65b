"""All that is shown of a plan, gathered once: text, JSON, page and diff read nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowgraph.inspect.devices import Used, devices_used, used_devices
from flowgraph.inspect.edges import TrainingEdge, Way, training_edges, ways_of
from flowgraph.inspect.parts import Part, decisions_of, parts_of
from flowgraph.inspect.step_path import StepPath, step_path
from flowgraph.ir.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """plan: what they are of. basis: what the seconds rest on. pins: decisions that were told.

    step_s: predicted seconds of a step; bound_s: the models' part of it is no shorter under any
    plan of this graph on this cluster, as far as was proved (0: not asked).
    """

    plan: Plan
    step_s: float
    bound_s: float
    basis: str
    path: StepPath
    parts: tuple[Part, ...]
    devices: tuple[Used, ...]
    devices_used: int
    ways: tuple[Way, ...]
    edges: tuple[TrainingEdge, ...]
    pins: Mapping[str, Any]

    @property
    def models_s(self) -> float:
        """Seconds of the slowest engine or gang."""
        return max((part.seconds for part in self.parts if part.kind != "stage"), default=0.0)

    @property
    def hidden(self) -> tuple[Part, ...]:
        """Parts whose work is no part of the critical path."""
        seen = {leg.group for leg in self.path.legs}
        return tuple(part for part in self.parts if part.name not in seen)

    @property
    def rate(self) -> float:
        """Steps a second."""
        return 1.0 / self.step_s if self.step_s else 0.0


def facts_of(plan: Plan) -> Facts:
    """Time and memory grow with the plan's processes and streams, linearly."""
    decisions = decisions_of(plan)
    parts = parts_of(plan, decisions)
    told = {f"{d.subject}.{d.name}": d.value for d in plan.decisions if d.pinned}
    return Facts(
        plan=plan,
        step_s=plan.prediction.step_seconds,
        bound_s=plan.prediction.bound_seconds,
        basis=_basis(parts),
        path=step_path(plan),
        parts=parts,
        devices=used_devices(plan),
        devices_used=devices_used(plan),
        ways=ways_of(plan, decisions),
        edges=training_edges(plan, decisions),
        pins={**plan.graph.pins, **told},
    )


def _basis(parts: tuple[Part, ...]) -> str:
    left = [part.name for part in parts if not part.measured]
    if len(left) == len(parts):
        return "estimated"
    return f"measured, but for {', '.join(left)}" if left else "measured"
