"""flatten, unflatten_ and digest128 against the digest's definition in whole Python numbers."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from flowgraph.kernels import digest128, flat_layout, flat_nbytes, flatten, unflatten_

kernels = hypothesis.settings.get_profile("kernels")
MASK = 2**64 - 1
ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
BLOCK_WORDS = 2048


def mix(value: int) -> int:
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


def by_definition(data: bytes) -> int:
    padded = data + bytes(-len(data) % 4)
    words = [int.from_bytes(padded[at : at + 4], "little") for at in range(0, len(padded), 4)]
    lanes = []
    for lane, odd in enumerate(ODD):
        total = len(data) * odd
        for block, begin in enumerate(range(0, len(words), BLOCK_WORDS)):
            inside = words[begin : begin + BLOCK_WORDS]
            first = lane * BLOCK_WORDS + 1
            keys = (mix((first + place) * ODD[0] & MASK) for place in range(len(inside)))
            hashed = sum(word * key for word, key in zip(inside, keys, strict=True))
            total += mix((hashed + (block + 1) * odd) & MASK)
        lanes.append(mix(total & MASK))
    return lanes[0] << 64 | lanes[1]


def octets(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("size", [0, 1, 3, 4, 17, 8191, 8192, 8193, 3 * 8192 + 5])
def test_the_digest_is_the_defined_one(size: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(size)
    data = torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8)
    assert digest128(data.to(device)) == by_definition(octets(data))


def test_the_digest_of_an_unaligned_view_is_that_of_its_bytes(device: torch.device) -> None:
    data = torch.arange(9000).remainder(251).to(torch.uint8)
    assert digest128(data.to(device)[3:]) == by_definition(octets(data[3:]))
    assert digest128(torch.zeros(4, dtype=torch.bfloat16, device=device)) == by_definition(bytes(8))
    with pytest.raises(ValueError, match="contiguous"):
        digest128(torch.zeros(4, 4)[:, 1])


def test_the_digest_sees_order_length_and_pairs_of_flipped_signs(device: torch.device) -> None:
    base = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    changed = [base.clone() for _ in range(5)]
    changed[0][[7, 8]] = base[[8, 7]]  # neighbours change places
    changed[1][[1, 4000]] = base[[4000, 1]]  # over blocks
    changed[2] = torch.cat([base[2048:4096], base[:2048], base[4096:]])  # whole blocks
    changed[3][[3, 99]] *= -1  # two top bits
    changed[4] = torch.cat([base, torch.zeros(1)])  # zeros at the end
    digests = {digest128(tensor.to(device)) for tensor in [base, *changed]}
    assert len(digests) == 6


SHAPES = st.lists(
    st.tuples(
        st.sampled_from([(), (0,), (3,), (64,), (5, 7), (2049,), (70, 61)]),
        st.sampled_from(
            [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
        ),
    ),
    max_size=5,
)


def parameters(shapes: list[tuple[tuple[int, ...], torch.dtype]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        f"p{number}": (torch.randn(shape, generator=generator) * 50).to(dtype)
        if dtype.is_floating_point
        else torch.randint(0, 2, shape, generator=generator).to(dtype)
        for number, (shape, dtype) in enumerate(shapes)
    }


@hypothesis.settings(kernels)
@hypothesis.given(
    shapes=SHAPES, dtype=st.sampled_from([None, torch.bfloat16, torch.float16, torch.float32])
)
def test_parameters_come_back_and_the_digest_is_that_of_the_buffer(
    shapes: list[tuple[tuple[int, ...], torch.dtype]],
    dtype: torch.dtype | None,
    device: torch.device,
) -> None:
    tensors = {name: tensor.to(device) for name, tensor in parameters(shapes).items()}
    layout = flat_layout(tensors, dtype)
    buffer, digest = flatten(tensors, dtype)
    expected = bytearray(flat_nbytes(layout))
    for entry in layout:
        written = tensors[entry.name].cpu().to(entry.dtype)
        expected[entry.offset : entry.offset + entry.nbytes] = octets(written)
    assert octets(buffer) == bytes(expected)
    assert digest == by_definition(bytes(expected)) == digest128(buffer)

    back = {name: torch.full_like(tensor, 1) for name, tensor in tensors.items()}
    assert unflatten_(buffer, back, dtype, expect=digest) == digest
    for entry in layout:
        tensor = tensors[entry.name]
        assert torch.equal(back[entry.name], tensor.to(entry.dtype).to(tensor.dtype)), entry


def test_strided_parameters_are_read_and_written(device: torch.device) -> None:
    tensors = {"w": torch.randn(6, 4, device=device).T, "b": torch.randn(9, device=device)[::2]}
    buffer, digest = flatten(tensors)
    assert octets(buffer)[:96] == octets(tensors["w"])
    back = {"w": torch.zeros(6, 4, device=device).T, "b": torch.zeros(9, device=device)[::2]}
    unflatten_(buffer, back, expect=digest)
    assert torch.equal(back["w"], tensors["w"])
    assert torch.equal(back["b"], tensors["b"])


def test_casts_round_to_nearest_even_as_torch_does(device: torch.device) -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (4096,), generator=torch.Generator().manual_seed(3))
    values = bits.to(torch.int32).view(torch.float32)
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -0.0, torch.inf, -torch.inf, 3.4e38])
    values = torch.cat([values[~values.isnan()], ties])
    buffer, _ = flatten({"x": values.to(device)}, torch.bfloat16)
    assert octets(buffer)[: 2 * len(values)] == octets(values.to(torch.bfloat16))


def test_a_wrong_digest_is_refused_before_anything_is_touched() -> None:
    buffer, digest = flatten({"x": torch.arange(5.0)})
    target = {"x": torch.zeros(5)}
    with pytest.raises(ValueError, match="digest of the flat buffer: expects"):
        unflatten_(buffer, target, expect=digest ^ 1)


def test_wrong_buffers_and_dtypes_are_refused() -> None:
    tensors = {"x": torch.arange(5.0)}
    with pytest.raises(ValueError, match=r"contiguous uint8 \[64\]"):
        unflatten_(torch.zeros(20, dtype=torch.uint8), tensors)
    with pytest.raises(ValueError, match=r"contiguous uint8 \[64\]"):
        flatten(tensors, out=torch.zeros(64))
    with pytest.raises(ValueError, match="dtype: expects one of"):
        flatten(tensors, torch.int8)
