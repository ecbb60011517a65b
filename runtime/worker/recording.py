"""What `--record` keeps of a run's first update: training rows and gradients, as safetensors.

`record/<module>.rows.<unit>.<stream>.safetensors` and `record/<module>.gradient.safetensors`.
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from torch import Tensor

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Column
from flowgraph.runtime.item import Item


class Recorder:
    """Writes one module's first rows and gradient under `run_dir/record`."""

    def __init__(self, run_dir: str, module: str) -> None:
        self._folder = Path(run_dir) / "record"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._module = module

    def rows(self, item: Item) -> None:
        """The item's inputs, a file a unit and stream."""
        for stream, batches in item.inputs.items():
            for unit, batch in zip(item.units, batches, strict=True):
                name = f"{self._module}.rows.{unit:06d}.{stream}.safetensors"
                save_file(_tensors(batch), self._folder / name, metadata=_dtypes(batch))

    def gradient(self, flat: Tensor, divisor: float) -> None:
        """The divided gradient of the whole part, before clipping, float32 [parameters]."""
        path = self._folder / f"{self._module}.gradient.safetensors"
        tensors = {"gradient": flat.numpy().copy(), "divisor": np.array([divisor])}
        save_file(tensors, path)


def _tensors(batch: Batch) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    tensors = {}
    for name, column in batch.columns.items():
        tensors[f"{name}/values"] = np.array(column.values)
        for level, offsets in enumerate(column.offsets):
            tensors[f"{name}/offsets{level}"] = np.array(offsets)
    return tensors


def _dtypes(batch: Batch) -> dict[str, str]:
    return {name: column.dtype for name, column in batch.columns.items()}


def read_rows(run_dir: str, module: str) -> dict[int, dict[str, Batch]]:
    """What was recorded, by unit, by stream."""
    units: dict[int, dict[str, Batch]] = {}
    for path in sorted((Path(run_dir) / "record").glob(f"{module}.rows.*.safetensors")):
        _, unit, stream = path.name.removesuffix(".safetensors").split(".", 3)[1:]
        units.setdefault(int(unit), {})[stream] = _read(path)
    return units


def _read(path: Path) -> Batch:
    tensors = load_file(path)
    names = list(dict.fromkeys(name.rsplit("/", 1)[0] for name in tensors))
    columns = {}
    for name in names:
        levels = sorted(key for key in tensors if key.startswith(f"{name}/offsets"))
        values = tensors[f"{name}/values"]
        columns[name] = Column(str(values.dtype), values, tuple(tensors[key] for key in levels))
    first = next(iter(columns.values()))
    return Batch(first.rows, columns)
