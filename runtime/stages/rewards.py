"""What an episode's function returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of one trajectory.

    rewards: by agent, one number for all of its calls, or one number a call in the order in which
    the calls were made. An agent without calls may be left out. metrics: further figures, averaged
    over trajectories in the report.
    """

    rewards: Mapping[str, float | Sequence[float]]
    metrics: Mapping[str, float] = field(default_factory=dict)
