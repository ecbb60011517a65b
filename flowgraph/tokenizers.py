"""Two tokenizers that need no files: characters of an alphabet, and bytes.

Both are plain data, start with the same three special ids, and import nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class CharTokenizer:
    """One id per character of `alphabet`, after pad, bos and eos.

    Raises ValueError for an alphabet that names a character twice.
    """

    alphabet: str

    pad: ClassVar[int] = 0
    bos: ClassVar[int] = 1
    eos: ClassVar[int] = 2
    specials: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"tokenizer: alphabet {self.alphabet!r} names a character twice")

    @property
    def vocab(self) -> int:
        """Number of ids, special ones included."""
        return self.specials + len(self.alphabet)

    def encode(self, text: str, *, bos: bool = False, eos: bool = False) -> list[int]:
        """The ids of `text`; ValueError for a character outside the alphabet."""
        ids = [self._id(character) for character in text]
        return [self.bos] * bos + ids + [self.eos] * eos

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special ids left out; IndexError for an id the vocabulary lacks."""
        return "".join(self.alphabet[i - self.specials] for i in ids if i >= self.specials)

    def _id(self, character: str) -> int:
        place = self.alphabet.find(character)
        if place < 0:
            raise ValueError(f"tokenizer: {character!r} is not in the alphabet {self.alphabet!r}")
        return place + self.specials


@dataclass(frozen=True, slots=True)
class ByteTokenizer:
    """One id per byte of UTF-8, after pad, bos and eos: 259 ids, any text."""

    pad: ClassVar[int] = 0
    bos: ClassVar[int] = 1
    eos: ClassVar[int] = 2
    specials: ClassVar[int] = 3
    vocab: ClassVar[int] = 259

    def encode(self, text: str, *, bos: bool = False, eos: bool = False) -> list[int]:
        """The ids of `text`."""
        ids = [byte + self.specials for byte in text.encode()]
        return [self.bos] * bos + ids + [self.eos] * eos

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special ids left out; bytes that are no UTF-8 become U+FFFD."""
        data = bytes(i - self.specials for i in ids if i >= self.specials)
        return data.decode(errors="replace")
