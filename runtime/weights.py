"""A module's weights as one buffer with a digest: how a trainer's update reaches the engines.

The buffer holds the parameters in the order of their names, each in its own dtype, and no
persistent state besides; a tied parameter once.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowgraph.ir.errors import RunFailed
from flowgraph.kernels import flat_layout, flat_nbytes, unflatten_
from flowgraph.kernels import flatten as flatten_tensors
from flowgraph.kernels.flat import ALIGN


class WeightsRefused(RunFailed):
    """A buffer of weights does not fit the module or was damaged; the module is unchanged."""


def flatten(module: nn.Module, *, out: Tensor | None = None) -> tuple[Tensor, str]:
    """The weights as uint8 [bytes] and their digest, 32 hex digits. `out`: a buffer to reuse."""
    buffer, digest = flatten_tensors(parameters(module), out=out)
    return buffer, f"{digest:032x}"


def load_flat(module: nn.Module, flat: NDArray[np.generic] | Tensor, digest: str | None) -> None:
    """Copy a buffer that `flatten` made into the parameters, in place.

    `flat` of any dtype and device is taken by its bytes. `digest`: what the bytes must have; None
    leaves them unchecked. Raises WeightsRefused when size or digest differ, before any copy on the
    CPU.
    """
    into = parameters(module)
    layout = flat_layout(into)
    like = next(iter(into.values()), None)
    buffer = _octets(flat)
    if like is not None:
        buffer = buffer.to(like.device)
    expects = flat_nbytes(layout)
    if buffer.numel() != expects:
        raise WeightsRefused(
            f"weights: {type(module).__name__} has {len(into)} parameters in {expects} bytes, "
            f"got a buffer of {buffer.numel()} bytes",
            hint="build trainer and engine from the same module and parameters",
        )
    try:
        unflatten_(buffer, into, expect=None if digest is None else int(digest, 16))
    except ValueError as error:
        raise WeightsRefused(f"weights for {type(module).__name__}: {error}") from error


def parameters(module: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, in the order of their names; one that is tied appears once."""
    return {name: tensor.detach() for name, tensor in sorted(module.named_parameters())}


def _octets(flat: NDArray[np.generic] | Tensor) -> Tensor:
    """The buffer's bytes, uint8 [bytes], not copied unless the address is unaligned."""
    if isinstance(flat, np.ndarray):
        with warnings.catch_warnings():
            # A view of shared memory is read-only; so is what is done with it here.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(np.ascontiguousarray(flat).reshape(-1).view(np.uint8))
    octets = flat.detach().contiguous().reshape(-1).view(torch.uint8)
    return octets.clone() if octets.data_ptr() % ALIGN else octets
