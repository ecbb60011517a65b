"""What goes wrong in a simulation, as data: slow and dying workers, slow and cut connections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.randomness import key

Kind = Literal["slow", "delay", "partition", "crash", "duplicate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with one worker, or with all (`*`).

    slow: its work takes `factor` times as long. delay: each message to and from it takes up to
    `seconds` longer, each another time. partition: its messages wait until the fault is over.
    crash: it is gone at `start_s`. duplicate: some of its messages come again, up to `seconds`
    later, which no connection does: the orchestrator must not take a word twice. start_s, end_s:
    in virtual seconds; `end_s` 0 is for ever.
    """

    kind: Kind
    worker: str = "*"
    start_s: float = 0.0
    end_s: float = 0.0
    factor: float = 1.0
    seconds: float = 0.0

    def on(self, worker: str, now: float) -> bool:
        """Whether it bears on the worker at that time."""
        over = self.end_s and now >= self.end_s
        return self.worker in ("*", worker) and self.start_s <= now and not over


@dataclass(frozen=True, slots=True)
class Faults:
    """All that goes wrong; `seed` chooses the delays, by message and not by who looks."""

    faults: Sequence[Fault] = field(default=())
    seed: int = 0

    def slowness(self, worker: str, now: float) -> float:
        """How many times longer the worker's work takes."""
        factor = 1.0
        for fault in self.faults:
            if fault.kind == "slow" and fault.on(worker, now):
                factor *= fault.factor
        return factor

    def arrival(
        self, worker: str, direction: str, number: int, sent: float, wire_s: float
    ) -> float:
        """When message `number` on the worker's connection arrives; order is the connection's."""
        time = sent + wire_s
        for place, fault in enumerate(self.faults):
            if fault.kind == "delay" and fault.on(worker, sent):
                drawn = key(self.seed, place, worker, direction, number)
                time += fault.seconds * (int.from_bytes(drawn[:4], "little") / (1 << 32))
            elif fault.kind == "partition" and fault.on(worker, sent):
                time = max(time, fault.end_s)
        return time

    def again(self, worker: str, number: int, arrived: float) -> float | None:
        """When message `number` of the worker comes for the second time; None for never."""
        for place, fault in enumerate(self.faults):
            if fault.kind == "duplicate" and fault.on(worker, arrived):
                drawn = key(self.seed, place, worker, "again", number)
                if drawn[4] % 4 == 0:
                    share = int.from_bytes(drawn[:4], "little") / (1 << 32)
                    return arrived + fault.seconds * share
        return None

    def overtakes(self, token: str) -> bool:
        """Whether the word of this process's end comes before its last messages."""
        return key(self.seed, "overtakes", token)[0] % 2 == 0


_FIELDS = {f.name for f in fields(Fault)}


def read_faults(data: Any, workers: Sequence[str], file: str) -> Faults:
    """From a file's data: a list of faults, or `{seed, faults}`.

    Raises ConfigurationError naming the fault, the key, and what is expected.
    """
    seed = 0
    if isinstance(data, Mapping):
        if unknown := set(data) - {"seed", "faults"}:
            raise ConfigurationError(f"{file}: unknown key {min(unknown)!r}; seed and faults are")
        seed, data = int(data.get("seed", 0)), data.get("faults", [])
    if not isinstance(data, list | tuple):
        raise ConfigurationError(
            f"{file}: expects a list of faults, got {type(data).__name__}",
            hint="- {kind: slow, worker: host-0, factor: 3}",
        )
    return Faults(
        tuple(_fault(item, workers, f"{file}: fault {i}") for i, item in enumerate(data)), seed
    )


def _fault(item: Any, workers: Sequence[str], where: str) -> Fault:
    if not isinstance(item, Mapping):
        raise ConfigurationError(f"{where}: expects a mapping, got {item!r}")
    if unknown := set(item) - _FIELDS:
        raise ConfigurationError(
            f"{where}: unknown key {min(map(str, unknown))!r}", hint=", ".join(sorted(_FIELDS))
        )
    kind = next((known for known in get_args(Kind) if known == item.get("kind")), None)
    if kind is None:
        raise ConfigurationError(
            f"{where}: kind is {item.get('kind')!r}", hint=f"one of {', '.join(get_args(Kind))}"
        )
    worker = item.get("worker", "*")
    if worker != "*" and worker not in workers:
        raise ConfigurationError(
            f"{where}: the plan has no worker {worker!r}", hint=", ".join(sorted(workers)[:8])
        )
    numbers = {}
    for name in ("start_s", "end_s", "factor", "seconds"):
        value = item.get(name, Fault.__dataclass_fields__[name].default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise ConfigurationError(f"{where}: {name} is {value!r}; expects a number from 0 on")
        numbers[name] = float(value)
    if kind == "partition" and not numbers["end_s"]:
        raise ConfigurationError(f"{where}: a partition without an end ends the run: give end_s")
    if kind == "slow" and not numbers["factor"]:
        raise ConfigurationError(f"{where}: factor 0 would be no work at all")
    return Fault(kind=kind, worker=worker, **numbers)
