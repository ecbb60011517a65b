"""Every message between the orchestrator and its workers, and their wire form.

A message is a frozen dataclass of plain data; on the wire it is one msgpack array
`[VERSION, name, field, field, ...]` in field order. Tensors never travel here: bulk data stays in
shared memory and messages carry handles (see `pool.py`). Prompts and sampled tokens do: they are
small, and travel as packed bytes.

Direction and the sender's state are in each docstring: "W" is a worker, "O" the orchestrator.

incarnation: of the sender, how often its process had been replaced before it; see `link.py`.

`decode` believes nothing: length, depth, version, name, number of fields and each field's type
against its annotation. What does not pass is a `BadMessage`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import msgpack

from flowgraph.runtime.light import light
from flowgraph.runtime.wire_types import BadMessage, checker, field_checks, is_handle, unpack

__all__ = [
    "FROM_WORKERS",
    "MAX_BYTES",
    "MESSAGES",
    "BadMessage",
    "FromWorker",
    "Message",
    "decode",
    "encode",
]

VERSION = 1
MAX_BYTES = 1 << 26
"""The longest message that is read: 64 MiB, some million tokens of prompts."""

PlainHandle = Annotated[tuple[Any, ...], is_handle]
"""`Handle.to_plain()`: who holds a block, where, and its columns' layout."""

BlockName = tuple[str, int, int]
"""Which process wrote a block, where, and which use of the place it is: see `block_id`."""

PlainCall = Annotated[
    tuple[Any, ...],
    checker(tuple[int, bytes, bytes, int, float, tuple[int, ...], tuple[int, ...]]),
]
"""`call_to_plain`: id, key, prompt, most tokens, temperature, stop tokens, allowed tokens."""

PlainCompletion = Annotated[tuple[Any, ...], checker(tuple[int, bytes, bytes, bytes])]
"""`completion_to_plain`: id, tokens, log-probs, versions."""

Sums = Mapping[str, tuple[float, float]]
"""Metrics as (sum, count), so that any grouping of work adds up to the same mean."""


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """W → O, once, when its modules are built and it can take work.

    sizes: samples of each source this worker could measure, by `variant/stage`; -1 if endless.
    """

    worker: str
    pid: int
    sizes: Mapping[str, int]
    initial_digest: str = ""
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """O → W: run a task on units. Answered by one `Done`, or a `Failed`.

    samples: sample ids by unit. inputs: by stream, by unit, the blocks to read.
    outputs: streams to write; others are not wanted.
    """

    item: int
    task: str
    variant: int
    step: int
    part: int
    version: int
    units: tuple[int, ...]
    samples: tuple[tuple[int, ...], ...]
    inputs: Mapping[str, tuple[tuple[PlainHandle, ...], ...]]
    outputs: tuple[str, ...]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """W → O: the item is finished and its outputs are readable.

    outputs: by stream, a block for each unit. weights: the divisor's share of each unit (train).
    sizes: tokens (train rows) of each unit's outputs, for filling micro-batches, by stream.
    kept: sample ids kept by filters (ungated tasks). dropped: (sample, reason).
    held: blocks that it read and that something still looks at, mostly the user's code. They stay
    leased to this process until it says `Released`.
    """

    worker: str
    item: int
    outputs: Mapping[str, tuple[PlainHandle, ...]]
    sizes: Mapping[str, tuple[int, ...]]
    weights: tuple[float, ...]
    metrics: Sums
    kept: tuple[int, ...]
    dropped: tuple[tuple[int, str], ...]
    tokens: int
    busy_s: float
    held: tuple[BlockName, ...] = ()
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """O → W: gradients of an `apply` item's outputs, by unit. Answered by `BackwardDone`."""

    item: int
    task: str
    units: tuple[int, ...]
    gradients: tuple[PlainHandle, ...]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardDone:
    """W → O: the item's gradient is accumulated; its activations are gone. held: as in `Done`."""

    worker: str
    item: int
    busy_s: float
    held: tuple[BlockName, ...] = ()
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """W → O: generate calls of one agent, as `Call.to_plain()`."""

    worker: str
    agent: str
    calls: tuple[PlainCall, ...]
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """O → W (engine): calls issued by `origin`."""

    origin: str
    agent: str
    calls: tuple[PlainCall, ...]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """W (engine) → O: answers for `origin`, as `Completion.to_plain()`."""

    worker: str
    origin: str
    completions: tuple[PlainCompletion, ...]
    tokens: int
    busy_s: float
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """O → W: completions of calls that this worker issued."""

    completions: tuple[PlainCompletion, ...]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """O → W (every rank of a gang): all gradients of the part are in. Answered by `Updated`.

    divisor: the step's global count; 0 for a module without samples, whose version still moves.
    owners: (unit, rank) in unit order: who holds which unit's gradient (exact mode; else none).
    publish: rank 0 writes its new weights to its pool.
    """

    step: int
    part: int
    version: int
    divisor: float
    owners: tuple[tuple[int, int], ...]
    publish: bool


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """W → O: the module is at `version`; rank 0 adds its weights when asked to publish."""

    worker: str
    version: int
    metrics: Mapping[str, float]
    weights: PlainHandle | None
    digest: str
    busy_s: float
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """O → W (engine): weights of `version`; the digest is checked. Answered by `Loaded`."""

    version: int
    weights: PlainHandle
    digest: str


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """W (engine) → O."""

    worker: str
    version: int
    busy_s: float
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """O → W (rank 0 of a gang): write the module's whole state to `folder`. Answer: `Saved`."""

    step: int
    folder: str


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """W → O: the module's state after `step` steps is on disk."""

    worker: str
    step: int
    busy_s: float
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """W → O: which items have waited for blocks of other nodes for a second and more, and the
    porters that have those; sent when that changes, with none at last. For the wait report.
    """

    worker: str
    items: tuple[int, ...]
    porters: tuple[str, ...]
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """O → W: all readers are done with these blocks of yours: (offset, generation)."""

    blocks: tuple[tuple[int, int], ...]


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """W → O: a block of the stream, of so many bytes, finds no room: it waits for a `Free`.

    freed: how many `Free` this process had taken when it looked. One that is on its way ends the
    wait, or is followed by another `Full`.
    """

    worker: str
    stream: str
    nbytes: int
    freed: int
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """W → O: nothing looks any more at these of the blocks that it held.

    asked: it is the answer to `Recall`, in which there may be none.
    """

    worker: str
    blocks: tuple[BlockName, ...]
    asked: bool
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """O → W: the run stands still for want of room. Search for garbage, then say which of the
    blocks that you hold are free now. Answered by one `Released`, also while it waits for room.
    """


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """W → O: the worker cannot go on; it exits after this.

    lost_peer: another rank of its gang is gone, whose own end says more than this.
    hint: what the user can do, or empty.
    training: it was a training step's work, whose sample may be put aside; not an evaluation's.
    """

    worker: str
    lost_peer: bool
    training: bool
    hint: str
    stage: str
    sample: int | None
    cause: str
    traceback: str
    at: str
    incarnation: int = 0


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """O → W: end. checkpoint: folder for final weights, or empty."""

    checkpoint: str


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """W → O, last. digest: sha256 over the module's parameters (rank 0 of a gang)."""

    worker: str
    digest: str
    initial_digest: str
    incarnation: int = 0


FromWorker = (
    Ready
    | Done
    | BackwardDone
    | Issued
    | Generated
    | Updated
    | Loaded
    | Saved
    | Fetching
    | Full
    | Released
    | Failed
    | Stopped
)
"""What a worker says; it names itself and its incarnation."""

Message = (
    Ready
    | Run
    | Done
    | Backward
    | BackwardDone
    | Issued
    | Generate
    | Generated
    | Answers
    | Update
    | Updated
    | Load
    | Loaded
    | Save
    | Saved
    | Fetching
    | Free
    | Full
    | Released
    | Recall
    | Failed
    | Stop
    | Stopped
)

MESSAGES: Mapping[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Ready,
        Run,
        Done,
        Backward,
        BackwardDone,
        Issued,
        Generate,
        Generated,
        Answers,
        Update,
        Updated,
        Load,
        Loaded,
        Save,
        Saved,
        Fetching,
        Free,
        Full,
        Released,
        Recall,
        Failed,
        Stop,
        Stopped,
    )
}
_FIELDS = {name: tuple(f.name for f in fields(cls)) for name, cls in MESSAGES.items()}
_READERS = {name: (cls, tuple(field_checks(cls).items())) for name, cls in MESSAGES.items()}

FROM_WORKERS = tuple(cls for name, cls in MESSAGES.items() if "worker" in _FIELDS[name])
"""What a worker may say: it names itself. From a worker, anything else is refused."""


def encode(message: Message) -> bytes:
    """The message's wire form."""
    name = type(message).__name__
    parts: list[Any] = [VERSION, name]
    for field in _FIELDS[name]:
        parts.append(getattr(message, field))
    packed: bytes = msgpack.packb(parts)
    return packed


def decode(data: bytes | memoryview) -> Message:
    """Inverse of `encode`. Raises BadMessage naming what is wrong, and nothing else."""
    parts = unpack(data, MAX_BYTES)
    if type(parts) is not tuple or len(parts) < 2 or type(parts[0]) is not int:
        raise BadMessage("a message that is not [version, name, field, ...]")
    version, name = parts[0], parts[1]
    if version != VERSION:
        raise BadMessage(f"a message of version {version}, not {VERSION}")
    reader = _READERS.get(name) if type(name) is str else None
    if reader is None:
        shown = repr(name[:60]) if isinstance(name, str | bytes) else type(name).__name__
        raise BadMessage(f"a message of unknown type {shown}")
    cls, checks = reader
    if len(parts) - 2 != len(checks):
        raise BadMessage(f"a {name} of {len(parts) - 2} fields, not {len(checks)}")
    values: dict[str, Any] = {}
    at = 2
    for field, check in checks:
        value = parts[at]
        if not check(value):
            raise BadMessage(f"a {name} whose '{field}' has a wrong type or range")
        values[field] = value
        at += 1
    message: Message = cls(**values)
    return message
