"""What was trained, and what was added to which update in which order.

Law: every unit of a step is computed once by each module that the step trains, and its gradient is
added once, to the update of the unit's own part, by the rank that computed it.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import xxhash

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.messages import Update
from flowgraph.runtime.topology import Topology, divide

Entry = tuple[str, int, int, int, tuple[int, ...]]
"""(module, step, part, unit, samples): one gradient that an update of the module consists of."""


class Ledger:
    """Kept by the gangs of a simulation. `entries`: in the order in which they were added; those
    given are of before the checkpoint that the run goes on from.
    """

    def __init__(self, *, exact: bool, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = list(entries)
        self._exact = exact
        self._computed: dict[tuple[str, int, int], tuple[int, tuple[int, ...]]] = {}
        self._held: dict[str, list[tuple[str, int, int]]] = {}

    def computed(
        self, module: str, step: int, unit: int, *, rank: int, samples: tuple[int, ...]
    ) -> None:
        """A rank has the unit's gradient. Raises InternalError when somebody had it already."""
        identity = (module, step, unit)
        if identity in self._computed:
            raise InternalError(f"unit {unit} of step {step} was computed twice for '{module}'")
        self._computed[identity] = (rank, samples)
        self._held.setdefault(module, []).append(identity)

    def updated(self, module: str, update: Update) -> None:
        """An update takes in all gradients that its module's ranks hold."""
        held = {unit: step for _, step, unit in self._held.pop(module, [])}
        # Exact mode adds in the order that it is told; otherwise in that of computation.
        owners = dict(update.owners)
        if not self._exact:
            owners = {unit: self._computed[module, step, unit][0] for unit, step in held.items()}
        order = list(owners)
        if set(held) != set(owners):
            raise InternalError(
                f"update {update.version} of '{module}' names units {sorted(owners)}, its ranks "
                f"hold {sorted(held)}"
            )
        for unit in order:
            rank, samples = self._computed.pop((module, held[unit], unit))
            if rank != owners[unit] or held[unit] != update.step:
                raise InternalError(f"unit {unit} of '{module}' is not where the update looks")
            self.entries.append((module, update.step, update.part, unit, samples))

    @property
    def unused(self) -> int:
        """Gradients that no update has taken in."""
        return len(self._computed)

    def digest(self) -> str:
        """Of all entries, in the order of addition; by unit where that order is free."""
        return digest_of(self.entries, exact=self._exact)


def digest_of(entries: list[Entry], *, exact: bool) -> str:
    """Modules go on side by side: only the order within each of them is looked at."""
    by_module = sorted(entries, key=lambda entry: entry[:3] if exact else entry)
    return xxhash.xxh3_128_hexdigest(repr(by_module).encode())


def reference_entries(
    plan: Plan,
    *,
    steps: int,
    exact: bool,
    keeps: Callable[[int], bool] = lambda _: True,
    source_size: int = -1,
) -> list[Entry]:
    """What one process without overlap adds, in its order: from the definition of a membership."""
    topology = Topology(plan)
    source = plan.graph.by_op("source")[0]
    at_end = str(source.attributes.get("at_end", "loop"))
    endless = at_end == "loop" or source_size < 0
    kept = (
        sample for sample in (_count_up() if endless else iter(range(source_size))) if keeps(sample)
    )
    entries: list[Entry] = []
    for step in range(steps):
        members = tuple(islice(kept, plan.schedule.batch))
        if len(members) < plan.schedule.batch and (at_end == "drop" or not members):
            break
        units, parts = divide(members, topology.unit_samples(exact), plan.schedule.updates)
        for part, scope in enumerate(parts):
            entries += [
                (module, step, part, unit, units[unit])
                for module in topology.trained_modules()
                for unit in scope
            ]
    return entries


def _count_up() -> Iterator[int]:
    sample = 0
    while True:
        yield sample
        sample += 1
