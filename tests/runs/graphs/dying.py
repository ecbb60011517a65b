"""A small model whose trainer is killed, or kills the whole run, at exact places of its work.

The environment says where, since the graph shall be the same whoever dies: FLOWGRAPH_TEST_DIES is
`<folder>:<whose>:<place>,<place>,...`. Each place comes once, on its second time in a process, and
leaves `<folder>/<place>`. whose: `rank`, or `orchestrator`, whose death ends all others.
"""

import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

import flowgraph as fg
from flowgraph.algorithms import cross_entropy
from flowgraph.models import decoder

if TYPE_CHECKING:
    from torch import Tensor

VARIABLE = "FLOWGRAPH_TEST_DIES"
UPDATING = ("before-applying", "after-applying")
SAVING = ("before-saving", "amid-a-file", "before-renaming", "between-files")
"""amid-a-file: the kernel kills it when it writes more than a few bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def build(steps: int = 10) -> fg.Graph:
    g = fg.Graph("dying", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
    lines = g.source("lines", counting)
    lines.train(lm, loss=loss, batch=8, micro_batch=fg.tokens(64), optimizer=fg.adamw(1e-3))
    return g


def counting() -> Sequence[Line]:
    return [
        Line([(i + k) % 32 for k in range(4 + i % 5)], np.ones(4 + i % 5, np.float32))
        for i in range(1000)
    ]


def loss(outputs: Any, fields: Mapping[str, "Tensor"]) -> tuple["Tensor", dict[str, "Tensor"]]:
    arm()
    return cross_entropy.loss(outputs, fields)


@cache
def arm() -> None:
    """In this process, at its first micro-batch: watch its updates and its files."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        return
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    folder, whose, places = asked.split(":")
    doom = Doom(Path(folder), whose, places.split(","))
    register_optimizer_step_pre_hook(lambda *_: doom.reach("before-applying"))
    register_optimizer_step_post_hook(lambda *_: doom.applied())
    sys.addaudithook(partial(watch_files, doom))


def watch_files(doom: "Doom", event: str, arguments: Sequence[Any]) -> None:
    """Python tells of an operation on files before it is done."""
    if event == "os.mkdir" and str(arguments[0]).endswith(".partial"):
        doom.reach("before-saving")
        doom.reach("amid-a-file")
    if event == "os.rename" and str(arguments[0]).endswith(".safetensors.partial"):
        doom.reach("before-renaming")
    if event == "open" and str(arguments[0]).endswith(".version"):
        doom.reach("between-files")


class Doom:
    """folder: of a file for each place that was reached, and of `other-applied`, a named pipe that
    the first to die waits at until another rank has applied the update.
    """

    def __init__(self, folder: Path, whose: str, places: Sequence[str]) -> None:
        self._folder, self._whose, self._places = folder, whose, places
        self._times: Counter[str] = Counter()
        self._pipe = folder / "other-applied"

    def reach(self, place: str) -> None:
        self._times[place] += 1
        if place not in self._places or self._times[place] != 2:
            return
        try:
            (self._folder / place).touch(exist_ok=False)
        except FileExistsError:  # it was another's end
            return
        if place == "before-applying" and self._pipe.exists():
            self._pipe.read_bytes()
            self._pipe.unlink()
        if place == "amid-a-file" and self._whose == "rank":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            return
        self._die()

    def applied(self) -> None:
        if (self._folder / "before-applying").exists() and self._pipe.exists():
            self._pipe.write_bytes(b"")
        self.reach("after-applying")

    def _die(self) -> None:
        if self._whose == "rank":
            os.kill(os.getpid(), signal.SIGKILL)
        zygote = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(zygote.rpartition(")")[2].split()[1]), signal.SIGKILL)
        signal.pause()  # until the kernel ends this process with its parent
