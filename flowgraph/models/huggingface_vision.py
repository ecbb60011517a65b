"""Native-resolution vision towers of the Qwen-VL family behind our encoder's interface.

Their packing is ours: patches of all images in one row, the merge x merge patches of a square
adjacent. What differs is the order inside a patch (colour, frame, y, x) and that shapes are given
as grids. Nothing is fetched; weights are float32.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoModel


class HuggingFaceVisionTower(nn.Module):
    """The interface of `VisionTransformer` over a transformers vision tower."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        self.tower = tower
        self.merge = int(tower.config.spatial_merge_size)

    def forward(self, patches: Tensor, image_ids: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Features [(R,) F, out_width], zero where the patches are padding (image 0).

        Arguments as `VisionTransformer.forward`. Every image must be whole: raises ValueError for
        patches that do not fill their image's grid.
        """
        shape = image_ids.shape
        real = image_ids.flatten() != 0
        grids = self._grids(image_ids, rows.flatten(), cols.flatten())
        features = patches.new_zeros(
            real.numel() // self.merge**2, self.tower.config.out_hidden_size
        )
        if len(grids):
            taken = self._their_order(patches.flatten(0, -2)[real])
            made = self.tower(taken, grid_thw=grids).pooler_output
            squares = real[:: self.merge**2].nonzero().squeeze(1)
            features = features.index_copy(0, squares, made)
        return features.view(*shape[:-1], shape[-1] // self.merge**2, -1)

    def encode(
        self, columns: Mapping[str, Tensor], offsets: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Features of whole images: flat [F, out_width], and int64 [N + 1] offsets of each image's.

        Arguments as `VisionTransformer.encode`; the images lie in one row.
        """
        patches, ends = columns["patches"], offsets["patches"].cpu()
        if int(ends[-1]) == 0:
            return patches.new_zeros((0, self.tower.config.out_hidden_size)), ends
        images = torch.arange(1, len(ends), device=patches.device)
        ids = images.repeat_interleave(ends.diff().to(patches.device))
        features = self.forward(patches, ids, columns["rows"], columns["cols"])
        return features, ends // self.merge**2

    def _their_order(self, patches: Tensor) -> Tensor:
        """[P, y, x, colour] to [P, colour, frame, y, x]; a still image repeats over frames."""
        config = self.tower.config
        size, frames = config.patch_size, config.temporal_patch_size
        cut = patches.view(-1, size, size, config.in_channels).permute(0, 3, 1, 2)
        return cut.unsqueeze(2).expand(-1, -1, frames, -1, -1).flatten(1)

    def _grids(self, image_ids: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """[images, 3]: frames (1), rows and columns of each image, in the patches' order."""
        ids = image_ids.flatten()
        starts = torch.ones_like(ids, dtype=torch.bool)
        starts[1:] = ids[1:] != ids[:-1]
        starts[:: image_ids.shape[-1]] = True  # images never cross a packed row
        runs = starts.nonzero().squeeze(1).tolist()
        grids = []
        for start, stop in zip(runs, [*runs[1:], len(ids)], strict=True):
            if ids[start] == 0:
                continue
            down, across = int(rows[start:stop].max()) + 1, int(cols[start:stop].max()) + 1
            if down * across != stop - start:
                raise ValueError(
                    f"hf_vision_tower: image {int(ids[start])} has {stop - start} patches, "
                    f"not the {down} x {across} of its grid"
                )
            grids.append((1, down, across))
        return torch.tensor(grids, dtype=torch.int64, device=ids.device)


def load_vision_tower(path: str) -> HuggingFaceVisionTower:
    """The vision tower of the model in the local folder `path`.

    Raises FileNotFoundError for a missing folder and ValueError for a model without `visual`.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"hf_vision_tower: no such folder: {path}")
    model = AutoModel.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    if not hasattr(model, "visual"):
        raise ValueError(f"hf_vision_tower: {type(model).__name__} has no Qwen-VL vision tower")
    return HuggingFaceVisionTower(cast(Any, model).visual)
