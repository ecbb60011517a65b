"""A native-resolution vision transformer over packed images (NaViT, arXiv 2307.06304).

Images keep their size: each is a segment of patches, several share a row, and attention never
crosses an image. Positions are two-dimensional sines and cosines, so that no table bounds the
size. Legend: R rows, P patches of a row, M = merge * merge, F = P / M features of a row.
"""

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from flowgraph.kernels import PackPlan, Ragged, pack, unpack
from flowgraph.models.attention import attend, segment_mask
from flowgraph.models.configs import ViTConfig
from flowgraph.models.decoder_lm import initialise
from flowgraph.runtime.policy import pack_cheapest


class EncoderBlock(nn.Module):
    """Pre-norm attention without order, then a GELU feed-forward."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.up = nn.Linear(config.width, config.feed_forward, bias=False)
        self.down = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        heads = self.qkv(self.attention_norm(x)).view(*x.shape[:2], 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(attend(q, k, v, mask))
        return x + cast(Tensor, self.down(functional.gelu(self.up(self.feed_forward_norm(x)))))


class VisionTransformer(nn.Module):
    """Patches in, one feature per merge x merge square of patches out."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        merged = config.width * config.merge**2
        self.embedding = nn.Linear(config.patch_values, config.width)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.merger = nn.Sequential(
            nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, config.feature_width)
        )
        initialise(self, config.init_std)

    def forward(self, patches: Tensor, image_ids: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Features [(R,) F, out_width] in the patches' order.

        `patches` float [(R,) P, patch values]; `image_ids` [(R,) P], 0 for padding; `rows`, `cols`
        [(R,) P] in patches. P is a multiple of M and the patches of a square are adjacent, as
        `patchify` lays them. Attention costs R * P^2: pack many images in several rows.
        """
        if patches.dim() == 2:
            packed = (t.unsqueeze(0) for t in (patches, image_ids, rows, cols))
            return self.forward(*packed).squeeze(0)
        x = self.embedding(patches) + self._positions(rows, cols).to(patches.dtype)
        mask = segment_mask(image_ids, causal=False)
        for block in self.blocks:
            x = block(x, mask)
        squares = self.norm(x).unflatten(1, (-1, self.config.merge**2)).flatten(2)
        return cast(Tensor, self.merger(squares))

    def encode(
        self, columns: Mapping[str, Tensor], offsets: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Features of whole images: flat [F, out_width], and int64 [N + 1] offsets of each image's.

        columns: `patches` [P, patch values], `rows` and `cols` [P], of N images end to end;
        offsets["patches"] int64 [N + 1]. Images share rows where that is cheaper: small ones beside
        large ones. The shapes depend on the images' sizes alone.
        """
        ends, merged = offsets["patches"].cpu(), self.config.merge**2
        if int(ends[-1]) == 0:
            return columns["patches"].new_zeros((0, self.config.feature_width)), ends
        packs = pack_cheapest(ends.diff().numpy())
        plan = PackPlan(order=packs.order, bounds=packs.boundaries, length=packs.cap)
        names = ("patches", "rows", "cols")
        packed = pack({name: Ragged(columns[name], ends) for name in names}, plan)
        patches, rows, cols = (packed[name] for name in names)
        features = self.forward(patches, packed.segment_ids + 1, rows, cols)
        return unpack(features, packed.layout.coarser(merged)).values, ends // merged

    def _positions(self, rows: Tensor, cols: Tensor) -> Tensor:
        """[R, P, width]: sines and cosines of the row in one half, of the column in the other."""
        quarter = self.config.width // 4
        steps = torch.arange(quarter, device=rows.device, dtype=torch.float32) / quarter
        angles = torch.stack((rows, cols), dim=-1).unsqueeze(-1) * (100.0**-steps)
        waves = torch.stack((angles.sin(), angles.cos()), dim=-2).flatten(-3)
        return waves * (self.config.position_std * math.sqrt(2))
