"""One rank of a module's gang: it applies the module, trains it, and updates it.

It talks to nobody but its collective: workers hand it items and orders, the reference executor does
the same in one process. Ranks hold the same weights at all times, since each applies the same
update to the same sum of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.ir.errors import GraphError, InternalError, RunFailed
from flowgraph.ir.graph import Stage
from flowgraph.ir.plan import Plan
from flowgraph.runtime import weights
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.item import Item
from flowgraph.runtime.topology import Topology
from flowgraph.runtime.trainer import saving
from flowgraph.runtime.trainer.apply_task import ApplyTask
from flowgraph.runtime.trainer.build import build_module, select_trainable
from flowgraph.runtime.trainer.collective import Alone, Collective
from flowgraph.runtime.trainer.flat_parameters import FlatParameters
from flowgraph.runtime.trainer.gradients import Gradients
from flowgraph.runtime.trainer.interface import Sums, TrainResult, UpdateOrder
from flowgraph.runtime.trainer.optimizer import Schedule, build_optimizer
from flowgraph.runtime.trainer.train_task import TrainTask


class Rank:
    """Executor of apply and train tasks of one module.

    `version` counts updates, those without samples included, and starts at 0; whoever loads
    weights sets it. In exact mode the caller has set one torch thread and deterministic algorithms.
    """

    def __init__(
        self,
        plan: Plan,
        module: str,
        *,
        rank: int = 0,
        world: int = 1,
        steps: int,
        exact: bool,
        seed: int,
        collective: Collective | None = None,
        device: str = "cpu",
    ) -> None:
        """steps: of the whole run, for the learning rate. seed: the run's.

        Raises GraphError for what cannot be trained as declared, ValueError for a collective of
        another rank or world.
        """
        self._plan = plan
        self._topology = Topology(plan)
        self._declared = plan.graph.module(module)
        self._exact = exact
        self._seed = seed
        self._device = torch.device(device)
        self._collective = collective if collective is not None else Alone()
        if (self._collective.rank, self._collective.world) != (rank, world):
            raise ValueError(f"rank {rank} of {world} was given another's collective")
        built = build_module(self._declared, plan.graph.root, seed, exact=exact)
        self.module = built.to(self._device)
        self.version = 0
        self._apply_tasks: dict[str, ApplyTask] = {}
        self._train_tasks: dict[str, TrainTask] = {}
        trains = self._train_stages()
        names = select_trainable(self.module, self._declared) if trains else ()
        for parameter in self.module.parameters() if not trains else ():
            parameter.requires_grad_(False)
        self._learning: _Learning | None = None
        if names:
            self._require_path(trains[0])
            self._learning = _Learning(
                FlatParameters(self.module, names),
                trains,
                steps=max(1, steps),
                updates=plan.schedule.updates,
                exact=exact,
                tasks=[task.name for task in plan.tasks],
            )

    def apply(self, task: str, item: Item) -> dict[str, list[Batch]]:
        """The module's outputs, a batch a unit; see `ApplyTask`."""
        return self._apply_task(task).apply(item)

    def backward(
        self, task: str, item_id: int, units: Sequence[int], gradients: Sequence[Batch]
    ) -> None:
        """Gradients of an applied item's outputs, a batch a unit; each unit exactly once."""
        self._apply_task(task).backward(
            item_id, units, gradients, lambda units, part: self._collect(task, units, part)
        )

    def train(self, task: str, item: Item) -> TrainResult:
        """Adds the item's gradient to the part's; nothing is updated."""
        part = (item.step, item.part)
        return self._train_task(task).train(item, lambda units: self._collect(task, units, part))

    def evaluate(self, task: str, item: Item) -> Sums:
        """Figures of the evaluation that the item's variant names; no gradient."""
        stage = self._topology.variants()[item.variant - 1]
        return self._train_task(task).evaluate(item, stage)

    def update(self, order: UpdateOrder) -> dict[str, float]:
        """One optimizer step with the gradients of all ranks: `grad_norm` before clipping, `lr`.

        Without samples (divisor 0) only the version moves; weights and optimizer stay. Raises
        RunFailed when the gradient is not finite, CollectiveFailed when a rank is lost.
        """
        learning = self._require_learning()
        for task in self._apply_tasks.values():
            task.require_done()
        number = order.step * self._plan.schedule.updates + order.part
        figures = learning.update(number, order, self._collective)
        if not np.isfinite(figures["grad_norm"]):
            raise RunFailed(
                f"module '{self._declared.name}': the gradient of step {order.step} is not finite",
                at=learning.stage.at,
                hint="a lower learning rate, or a look at the step's samples",
            )
        self.version += 1
        return figures

    def publish(self) -> tuple[Tensor, str]:
        """The weights as uint8 [bytes] and their digest; see `runtime.weights`."""
        return weights.flatten(self.module)

    def load(self, flat: NDArray[np.generic] | Tensor, digest: str | None) -> None:
        """Weights that `publish` gave. Raises WeightsRefused, the module unchanged."""
        weights.load_flat(self.module, flat, digest)

    def weights_digest(self) -> str:
        """See `saving.weights_digest`."""
        return saving.weights_digest(self.module)

    def save(self, path: str | Path) -> None:
        """The weights as a safetensors file."""
        saving.save(self.module, path)

    def save_state(self, folder: str) -> None:
        """Weights, optimizer and version in `folder`, for `load_state` of any rank."""
        place, name = Path(folder), self._declared.name
        place.mkdir(parents=True, exist_ok=True)
        saving.save(self.module, place / f"{name}.safetensors")
        learning = self._require_learning()
        saving.save_optimizer(learning.optimizer, place / f"{name}.optimizer.safetensors")
        (place / f"{name}.version").write_text(str(self.version))

    def load_state(self, folder: str) -> None:
        """What `save_state` wrote; nothing for a module that is not trained."""
        if self._learning is None:
            return
        place, name = Path(folder), self._declared.name
        saving.load(self.module, place / f"{name}.safetensors")
        saving.load_optimizer(self._learning.optimizer, place / f"{name}.optimizer.safetensors")
        self.version = int((place / f"{name}.version").read_text())

    def flat_gradient(self) -> Tensor:
        """The gradient that the last update applied (divided, clipped), float [P], a copy.

        Trained parameters in name order, each padded with zeros to 16 elements.
        """
        return self._require_learning().flat.gradient.clone()

    @property
    def trained(self) -> bool:
        """Whether updates will come for this module."""
        return self._learning is not None

    def _collect(
        self, task: str, units: Sequence[int], part: tuple[int, int]
    ) -> AbstractContextManager[None]:
        # A frozen decoder still passes gradients on to the encoder of its features.
        if self._learning is None:
            return nullcontext()
        return self._learning.gradients.collecting(task, units, part)

    def _require_learning(self) -> _Learning:
        if self._learning is None:
            raise InternalError(f"module '{self._declared.name}' is not trained in this plan")
        return self._learning

    def _train_stages(self) -> list[Stage]:
        """The stages that train this module, in the plan's order."""
        return [
            self._topology.train_stage(task)
            for task in self._topology.of_kind("train")
            if self._declared.name in self._topology.trained_by(task)
        ]

    def _require_path(self, stage: Stage) -> None:
        """A module that is declared trained but that no gradient reaches would learn nothing."""
        name, topology = self._declared.name, self._topology
        of_losses = any(topology.module_of(task).name == name for task in topology.of_kind("train"))
        of_encoders = any(
            topology.module_of(task).name == name and topology.gradient_source(task) is not None
            for task in topology.of_kind("apply")
        )
        if not of_losses and not of_encoders:
            raise GraphError(
                f"module '{name}': stage '{stage.name}' trains it, but joins none of its outputs",
                at=stage.at,
                hint="join the stream of its `apply` directly, with nothing between",
            )

    def _apply_task(self, name: str) -> ApplyTask:
        if name not in self._apply_tasks:
            self._apply_tasks[name] = ApplyTask(
                self._plan,
                self._plan.task(name),
                self.module,
                exact=self._exact,
                device=self._device,
            )
        return self._apply_tasks[name]

    def _train_task(self, name: str) -> TrainTask:
        if name not in self._train_tasks:
            self._train_tasks[name] = TrainTask(
                self._plan,
                self._plan.task(name),
                self.module,
                exact=self._exact,
                seed=self._seed,
                device=self._device,
            )
        return self._train_tasks[name]


class _Learning:
    """What only a trained module has: flat parameters, gradients, optimizer, schedule."""

    def __init__(
        self,
        flat: FlatParameters,
        stages: Sequence[Stage],
        *,
        steps: int,
        updates: int,
        exact: bool,
        tasks: Sequence[str],
    ) -> None:
        self.flat = flat
        self.stage = stages[0]
        _require_one_setting(stages)
        self.gradients = Gradients(flat, exact=exact, tasks=tasks)
        self.optimizer = build_optimizer(self.stage, flat.weights)
        self._schedule = Schedule.of(self.stage, steps=steps, updates=updates)
        self._clip = float(self.stage.attributes.get("clip", 1.0))

    def update(self, number: int, order: UpdateOrder, collective: Collective) -> dict[str, float]:
        """`number`: in the whole run. A gradient that is not finite is not applied."""
        rate = self._schedule.rate(number)
        if order.divisor == 0:
            self.gradients.discard()
            self.flat.gradient.zero_()
            return {"grad_norm": 0.0, "lr": rate}
        gradient = self.gradients.reduce(order.owners, collective).div_(order.divisor)
        norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
        if np.isfinite(norm):
            if 0.0 < self._clip < norm:
                gradient.mul_(self._clip / norm)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        return {"grad_norm": norm, "lr": rate}


def _require_one_setting(stages: Sequence[Stage]) -> None:
    """A module has one optimizer, whichever of its losses a gradient comes from."""
    first = stages[0]
    for stage in stages[1:]:
        for name in ("optimizer", "schedule", "clip"):
            if stage.attributes.get(name) != first.attributes.get(name):
                raise GraphError(
                    f"stage '{stage.name}': trains a module of '{first.name}' with another "
                    f"{name}; expects one {name} a module",
                    at=stage.at,
                )
