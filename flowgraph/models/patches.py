"""Images as rows of patches, in numpy: what a vision tower takes, made where the data is."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePatches:
    """One image at its native resolution, as patches.

    `patches` [P, patch*patch*C] float32; `rows` and `cols` [P] int32 say where each patch lies.
    The `merge` x `merge` patches that leave an encoder as one feature are adjacent.
    """

    patches: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int32]
    cols: npt.NDArray[np.int32]


def patchify(
    image: npt.NDArray[np.generic],
    *,
    patch: int = 4,
    merge: int = 2,
    mean: float = 0.0,
    std: float = 1.0,
) -> ImagePatches:
    """Cut `image` [H, W] or [H, W, C] into patches of (pixel - mean) / std.

    The right and lower edges are padded with the mean (0 after scaling) up to a multiple of
    `patch * merge`. Raises ValueError for an image with no pixel, or of another rank.
    """
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(f"patchify: expects [H, W] or [H, W, C], none empty, got {image.shape}")
    pixels = ((image.astype(np.float64) - mean) / std).astype(np.float32)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    unit = patch * merge
    height, width, channels = pixels.shape
    pixels = np.pad(pixels, ((0, -height % unit), (0, -width % unit), (0, 0)))
    down, across = pixels.shape[0] // unit, pixels.shape[1] // unit
    # [group row, row in group, y, group column, column in group, x, colour]
    cut = pixels.reshape(down, merge, patch, across, merge, patch, channels)
    patches = cut.transpose(0, 3, 1, 4, 2, 5, 6).reshape(-1, patch * patch * channels)
    rows, cols = np.indices((down * merge, across * merge), dtype=np.int32)
    return ImagePatches(
        patches=np.ascontiguousarray(patches),
        rows=_in_patch_order(rows, merge),
        cols=_in_patch_order(cols, merge),
    )


def _in_patch_order(grid: npt.NDArray[np.int32], merge: int) -> npt.NDArray[np.int32]:
    down, across = grid.shape[0] // merge, grid.shape[1] // merge
    grouped = grid.reshape(down, merge, across, merge).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(grouped.reshape(-1))
