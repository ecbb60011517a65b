"""Record types: named fields with a dtype, dims and a key.

A declared type never changes with the data: a ragged field stays ragged when all its rows happen
to have one length.
"""

from dataclasses import dataclass
from typing import Literal

DTYPES = (
    "bool",
    "uint8",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "str",  # UTF-8 text; stored as one more ragged dim of uint8
)

Dtype = Literal[
    "bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "str"
]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A length that is the same for all rows of a run but unknown when compiling."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Ragged:
    """A length that differs from row to row. Ragged dims come before all others.

    Fields of one record that share a ragged dim's name have equal lengths in it row by row.
    """

    name: str

    def __str__(self) -> str:
        return f"{self.name}*"


Dim = int | Symbol | Ragged


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One named column of a record. `float32[images*, patches*, 16]` has two ragged dims."""

    name: str
    dtype: Dtype
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        dims = f"[{', '.join(map(str, self.dims))}]" if self.dims else ""
        return f"{self.name}: {self.dtype}{dims}"

    @property
    def ragged(self) -> tuple[str, ...]:
        """Names of the leading ragged dims."""
        return tuple(dim.name for dim in self.dims if isinstance(dim, Ragged))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordType:
    """The fields of a stream's records.

    `key` names the int64 fields that identify a record: `("sample",)`, then `"item"` after an
    unnest, or `"trajectory"` and `"call"` after episodes. Key fields are in `fields` too.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...] = ("sample",)

    def field(self, name: str) -> Field | None:
        """The field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.fields))
        return f"({inner}) by ({', '.join(self.key)})"


SAMPLE = Field(name="sample", dtype="int64")
ITEM = Field(name="item", dtype="int64")
TRAJECTORY = Field(name="trajectory", dtype="int64")
CALL = Field(name="call", dtype="int64")

TOKENS_DIM = Ragged("tokens")

AGENT_ROW = RecordType(
    fields=(
        SAMPLE,
        TRAJECTORY,
        CALL,
        Field(name="tokens", dtype="int64", dims=(TOKENS_DIM,)),
        Field(name="loss_mask", dtype="float32", dims=(TOKENS_DIM,)),  # 1 on sampled tokens
        Field(name="logprobs", dtype="float32", dims=(TOKENS_DIM,)),  # 0 on prompt tokens
        Field(name="versions", dtype="int32", dims=(TOKENS_DIM,)),  # -1 on prompt tokens
        Field(name="reward", dtype="float32"),
    ),
    key=("sample", "trajectory", "call"),
)
"""One generate call of an agent: prompt and sampled tokens in one row, trained as they are."""
