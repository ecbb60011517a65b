"""An engine worker: answers generate calls of an agent, batched continuously."""

import time
from collections.abc import Sequence
from pathlib import Path

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.calls import call_from_plain, completion_to_plain
from flowgraph.runtime.engine.torch_engine import TorchEngine
from flowgraph.runtime.messages import (
    Free,
    Generate,
    Generated,
    Load,
    Loaded,
    Message,
    Ready,
    Stop,
    Stopped,
)
from flowgraph.runtime.topology import Topology
from flowgraph.runtime.trainer.build import build_module
from flowgraph.runtime.trainer.saving import load
from flowgraph.runtime.worker.link import Line
from flowgraph.runtime.worker.output import store_of
from flowgraph.runtime.worker.spec import WorkerSpec


def run_engine(spec: WorkerSpec, plan: Plan, link: Line, pid: int) -> None:
    """Serve until `Stop`."""
    EngineWorker(spec, plan, link).serve(pid)


def make_engine(
    plan: Plan, group_name: str, *, exact: bool, restore: str = "", replaces: bool = False
) -> TorchEngine:
    """The engine of a group, with the module's first weights or those of a checkpoint.

    replaces: it takes a lost one's place, when its attempt's checkpoint may be old and gone; then
    present weights come before any call.
    """
    group = plan.group(group_name)
    graph = plan.graph
    module = build_module(graph.module(group.module), graph.root, graph.seed)
    if restore and group.module in Topology(plan).trained_modules():
        try:
            load(module, Path(restore) / f"{group.module}.safetensors")
        except FileNotFoundError:
            if not replaces:
                raise
    return TorchEngine(module, slots=group.slots, max_length=group.max_length, exact=exact)


class EngineWorker:
    """Numbers calls of several origins itself, and gives each origin its own ids back."""

    def __init__(self, spec: WorkerSpec, plan: Plan, link: Line) -> None:
        self._spec = spec
        self._link = link
        self._engine = make_engine(
            plan,
            spec.group,
            exact=spec.exact,
            restore=spec.restore,
            replaces=spec.incarnation > 0,
        )
        self._store = store_of(spec, plan)
        self._origins: dict[int, tuple[str, int]] = {}
        self._next = 0
        self._busy_s = 0.0

    def serve(self, pid: int) -> None:
        self.begin(pid)
        while self.turn(self._link.receive(0 if self.pending else -1)):
            pass

    def begin(self, pid: int) -> None:
        """Say that work can come."""
        self._link.send(Ready(worker=self._spec.name, pid=pid, sizes={}))

    @property
    def pending(self) -> bool:
        """Whether a turn without messages would get on."""
        return bool(self._engine.pending)

    def turn(self, messages: Sequence[Message]) -> bool:
        """Take the messages, then go on with what was asked for. False: stopped."""
        for message in messages:
            match message:
                case Generate():
                    self._submit(message)
                case Load():
                    self._load(message)
                case Free():
                    self._store.free(message)
                case Stop():
                    last = Stopped(worker=self._spec.name, digest="", initial_digest="")
                    self._link.send(last)
                    return False
                case _:
                    raise InternalError(f"an engine was sent a {type(message).__name__}")
        self._advance()
        return True

    def _submit(self, message: Generate) -> None:
        calls = []
        for plain in message.calls:
            self._origins[self._next] = (message.origin, plain[0])
            calls.append(call_from_plain(plain, self._next))
            self._next += 1
        self._engine.submit(calls)

    def _load(self, message: Load) -> None:
        began = time.perf_counter()
        flat = self._store.open(message.weights)["weights"].values
        self._engine.load_weights(message.version, flat, message.digest)
        busy = time.perf_counter() - began
        self._link.send(Loaded(worker=self._spec.name, version=message.version, busy_s=busy))

    def _advance(self) -> None:
        if not self._engine.pending:
            return
        began = time.perf_counter()
        finished = self._engine.advance()
        self._busy_s += time.perf_counter() - began
        answers: dict[str, list[tuple[object, ...]]] = {}
        tokens = 0
        for completion in finished:
            origin, id = self._origins.pop(completion.id)
            answers.setdefault(origin, []).append(completion_to_plain(completion, id))
            tokens += len(completion.tokens)
        for origin, completions in answers.items():
            message = Generated(
                worker=self._spec.name,
                origin=origin,
                completions=tuple(completions),
                tokens=tokens,
                busy_s=self._busy_s,
            )
            self._link.send(message)
            self._busy_s, tokens = 0.0, 0
