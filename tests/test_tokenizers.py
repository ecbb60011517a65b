"""Tokenizers: what is encoded comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.tokenizers import ByteTokenizer, CharTokenizer

ARITHMETIC = CharTokenizer("0123456789+-=")


@given(st.text(alphabet=ARITHMETIC.alphabet))
def test_characters_come_back_as_they_went(text: str) -> None:
    ids = ARITHMETIC.encode(text, bos=True, eos=True)
    assert (ids[0], ids[-1]) == (ARITHMETIC.bos, ARITHMETIC.eos)
    assert ARITHMETIC.decode(ids) == text
    assert max(ids) < ARITHMETIC.vocab


@given(st.text())
def test_bytes_come_back_as_they_went(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text, eos=True)
    assert tokenizer.decode([tokenizer.pad, *ids]) == text
    assert max(ids) < tokenizer.vocab


def test_bytes_cut_inside_a_character_do_not_fail() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\N{REPLACEMENT CHARACTER}"


def test_a_foreign_character_is_named() -> None:
    with pytest.raises(ValueError, match=r"'x' is not in the alphabet"):
        ARITHMETIC.encode("3+x")


def test_an_alphabet_with_a_double_character_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        CharTokenizer("abca")
