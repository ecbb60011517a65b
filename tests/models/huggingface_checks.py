"""The Hugging Face adapters, on tiny models made here. Not collected by default: run

    python -m pytest tests/models/huggingface_checks.py

where the `hf` extra is installed; without it this file fails, it does not skip.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2_5_VLConfig,
    Qwen2_5_VLModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from flowgraph.models import describe, hf_causal_lm, hf_vision_tower, patchify
from flowgraph.models.huggingface import HuggingFaceLM

TEXT = {
    "vocab_size": 37,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
}


@pytest.fixture(params=["llama", "qwen3-tied"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A tiny model, saved as anybody would."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if request.param == "llama":
        LlamaForCausalLM(LlamaConfig(**TEXT)).save_pretrained(tmp_path)
    else:
        config = Qwen3Config(**TEXT, head_dim=12, tie_word_embeddings=True)
        Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


def row(*lengths: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 37, (1, sum(lengths)), generator=source)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    segments = torch.cat([torch.full((n,), i + 1) for i, n in enumerate(lengths)]).int()[None]
    return tokens, positions, segments


def test_a_packed_row_equals_transformers_own_forward_of_each_segment(folder: str) -> None:
    model = hf_causal_lm(path=folder)
    tokens, positions, segments = row(5, 8)
    logits = model.logits(model(tokens, positions, segments))[0]
    for start, stop in ((0, 5), (5, 13)):
        alone = model.model(input_ids=tokens[:, start:stop]).logits[0]
        torch.testing.assert_close(logits[start:stop], alone, atol=2e-6, rtol=1e-5)


def decoded(model: HuggingFaceLM, slot: int, stale: float) -> list[torch.Tensor]:
    tokens, *_ = row(9)
    cache = model.new_cache(slots=4, max_length=16)
    cache.keys.fill_(stale)
    cache.values.fill_(stale)
    first, kv = model.prefill(tokens[:, :4], torch.tensor([4]))
    cache.write(torch.tensor([slot]), kv)
    seen = [first[0]]
    for position in range(4, 9):
        now, where = torch.zeros(2, 4, dtype=torch.int64)
        now[slot], where[slot] = tokens[0, position], position
        seen.append(model.decode(now, where, cache)[slot])
    return seen


def test_decoding_equals_the_forward_and_no_slot_differs_by_a_bit(folder: str) -> None:
    model = hf_causal_lm(path=folder)
    expected = model.logits(model(*row(9)))[0, 3:]
    here, there = decoded(model, 0, stale=0.0), decoded(model, 3, stale=9.0)
    for ours, theirs, full in zip(here, there, expected, strict=True):
        assert torch.equal(ours, theirs)
        torch.testing.assert_close(ours, full, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("feature_width", [None, 8])
def test_the_description_counts_every_parameter(folder: str, feature_width: int | None) -> None:
    model = hf_causal_lm(path=folder, feature_width=feature_width)
    params = {"path": folder, "feature_width": feature_width}
    described = describe("flowgraph.models.factories:hf_causal_lm", params)
    assert described["parameters"] == sum(p.numel() for p in model.parameters())
    assert (described["kv_heads"], described["vocab"]) == (2, 37)


def test_features_replace_embeddings(folder: str) -> None:
    model = hf_causal_lm(path=folder, feature_width=8)
    tokens, positions, segments = row(4)
    features, index = torch.ones(1, 8), torch.tensor([2])
    base = model(tokens, positions, segments, features, index)
    tokens[0, 2] = (tokens[0, 2] + 1) % 37
    assert torch.equal(base, model(tokens, positions, segments, features, index))


def test_the_vision_tower_gives_each_image_what_it_gets_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 4,
        "in_channels": 3,
        "out_hidden_size": 24,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    }
    text = {
        **TEXT,
        "hidden_size": 24,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 1]},
    }
    Qwen2_5_VLModel(Qwen2_5_VLConfig(text_config=text, vision_config=vision)).save_pretrained(
        tmp_path
    )
    tower = hf_vision_tower(path=str(tmp_path))
    source = np.random.default_rng(0)
    parts = [patchify(source.normal(size=(h, w, 3)), patch=4) for h, w in ((8, 16), (24, 8))]
    packs = []
    for wanted in (parts, parts[:1], parts[1:]):
        ids = np.concatenate([np.full(len(p.rows), i + 1) for i, p in enumerate(wanted)])
        pad = 32 - len(ids)
        columns = [
            np.concatenate([p.patches for p in wanted]),
            ids.astype(np.int32),
            np.concatenate([p.rows for p in wanted]),
            np.concatenate([p.cols for p in wanted]),
        ]
        padded = [np.pad(c, [(0, pad)] + [(0, 0)] * (c.ndim - 1)) for c in columns]
        packs.append(tower(*map(torch.from_numpy, padded)))
    both, first, second = packs
    assert both.shape == (8, 24)
    torch.testing.assert_close(both[:2], first[:2], atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(both[2:5], second[:3], atol=2e-6, rtol=1e-5)
    assert both[5:].eq(0).all()
    whole = {
        name: torch.from_numpy(np.concatenate([getattr(part, name) for part in parts]))
        for name in ("patches", "rows", "cols")
    }
    ends = torch.tensor([0, 8, 20])
    features, of_images = tower.encode(whole, {"patches": ends})
    torch.testing.assert_close(features, both[:5], atol=2e-6, rtol=1e-5)
    assert of_images.tolist() == [0, 2, 5]
    nothing = {name: column[:0] for name, column in whole.items()}
    assert tower.encode(nothing, {"patches": ends[:1]})[0].shape == (0, 24)


def test_a_missing_folder_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="no such folder: /nowhere"):
        hf_causal_lm(path="/nowhere")
