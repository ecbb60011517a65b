"""A run's messages as measurements: what each piece of work had in it, and its seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from flowgraph.ir.plan import Plan
from flowgraph.runtime.messages import (
    Answers,
    Backward,
    BackwardDone,
    Done,
    Generate,
    Generated,
    Issued,
    Loaded,
    Message,
    Ready,
    Run,
    Saved,
    Updated,
)
from flowgraph.runtime.topology import Topology

TOKEN_BYTES = 8

Row = tuple[tuple[float, ...], float]
"""(amounts, seconds): what a measurement had of each part, and what it took."""


@dataclass(slots=True)
class OpenCall:
    """A call that an engine has. turn: of the engine's answers, the first that it may be part of.
    decoded: tokens that it got after its prefill's.
    """

    prompt: int
    turn: int
    decoded: int = 0
    fresh: bool = True


@dataclass(slots=True)
class Turn:
    """What a stage worker has been given and has issued since its last `Done`."""

    items: float = 0.0
    samples: float = 0.0
    calls: float = 0.0


@dataclass(slots=True)
class Observed:
    """hosts: (items, samples, calls) by task. engines: (prefills, prompt tokens, iterations, row
    iterations) by group. tasks: (1, weight) by task and whether it was an evaluation.
    calls: (calls, trajectories) by agent. records: (records, samples) by stream.
    """

    hosts: dict[str, list[Row]] = field(default_factory=dict)
    engines: dict[str, list[Row]] = field(default_factory=dict)
    tasks: dict[tuple[str, bool], list[Row]] = field(default_factory=dict)
    backwards: dict[str, list[Row]] = field(default_factory=dict)
    updates: dict[str, list[float]] = field(default_factory=dict)
    saves: dict[str, list[float]] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=dict)
    prompts: dict[str, list[float]] = field(default_factory=dict)
    responses: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    tokens: dict[str, list[float]] = field(default_factory=dict)
    records: dict[str, tuple[float, int]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    messages: int = 0

    def rates(self) -> Iterator[tuple[str, float]]:
        """Records a source sample, by stream."""
        for stream, (records, samples) in self.records.items():
            yield stream, records / max(1, samples)


def observe(plan: Plan, messages: Iterable[tuple[float, bool, str, Message]]) -> Observed:
    """Sort the messages of a run, of all its attempts."""
    reader = _Reader(plan)
    for _, _, worker, message in messages:
        reader.take(worker, message)
    return reader.seen


class _Reader:
    def __init__(self, plan: Plan) -> None:
        self.seen = Observed()
        self._plan = plan
        self._topology = Topology(plan)
        self._groups = {f"{g.name}-{i}": g for g in plan.groups for i in range(g.replicas)}
        self._forget()

    def _forget(self) -> None:
        self._runs: dict[int, Run] = {}
        self._ready: set[str] = set()
        self._turns: dict[str, Turn] = {}
        self._open: dict[str, dict[tuple[str, int], OpenCall]] = {}
        self._answers: dict[str, int] = {}
        self._sizes: dict[tuple[int, int, str, int], int] = {}
        self._agents: dict[tuple[str, int], str] = {}

    def take(self, worker: str, message: Message) -> None:
        self.seen.messages += 1
        busy = getattr(message, "busy_s", 0.0)
        self.seen.busy[worker] = self.seen.busy.get(worker, 0.0) + busy
        match message:
            case Ready() if message.incarnation:
                self._turns.pop(worker, None)  # what its lost process had is others' now
                self._open.pop(worker, None)
            case Ready():
                if worker in self._ready:
                    self._forget()  # another attempt: items and calls are numbered anew
                self._ready.add(worker)
            case Run():
                self._run(worker, message)
            case Done():
                self._done(worker, message)
            case Backward() | BackwardDone():
                self._backward(message)
            case Issued():
                self._turns.setdefault(worker, Turn()).calls += len(message.calls)
                calls, played = self.seen.calls.get(message.agent, (0, 0))
                self.seen.calls[message.agent] = (calls + len(message.calls), played)
            case Generate():
                self._generate(worker, message)
            case Generated():
                self._generated(worker, message)
            case Updated():
                self.seen.updates.setdefault(self._groups[worker].module, []).append(busy)
            case Saved():
                self.seen.saves.setdefault(self._groups[worker].module, []).append(busy)
            case Loaded():
                self.seen.loads.setdefault(self._groups[worker].name, []).append(busy)
            case Answers():
                pass  # counted when they were issued
            case _:
                pass  # takes no time of a worker

    def _run(self, worker: str, run: Run) -> None:
        self._runs[run.item] = run
        task = self._plan.task(run.task)
        if task.kind != "host":
            return
        games = next((s for s in self._topology.stages(task) if s.op == "episodes"), None)
        tries = int(games.attributes["trajectories"]) if games and not run.variant else 1
        amount = sum(map(len, run.samples)) * tries
        turn = self._turns.setdefault(worker, Turn())
        turn.items += 1.0
        turn.samples += amount
        for agent in games.agents if games else ():
            calls, played = self.seen.calls.get(agent, (0, 0))
            self.seen.calls[agent] = (calls, played + amount)

    def _done(self, worker: str, done: Done) -> None:
        run = self._runs[done.item]
        task = self._plan.task(run.task)
        self._learn_sizes(run, done)
        if task.kind != "host":
            rows = self.seen.tasks.setdefault((task.name, run.variant > 0), [])
            rows.append(((1.0, float(self._weight(run))), done.busy_s))
            return
        turn = self._turns.setdefault(worker, Turn())
        if done.busy_s > 0.0:
            amounts = (turn.items, turn.samples, turn.calls)
            self.seen.hosts.setdefault(task.name, []).append((amounts, done.busy_s))
            self._turns[worker] = Turn()

    def _learn_sizes(self, run: Run, done: Done) -> None:
        for stream, sizes in done.sizes.items():
            samples = [len(unit) for unit in run.samples]
            if not self._plan.task(run.task).gated:
                samples = [len(done.kept)]  # the block has the rows of these alone
            for unit, size in zip(run.units, sizes, strict=True):
                self._sizes[(run.variant, run.step, stream, unit)] = size
            if run.variant or not sum(samples):
                continue
            if self._plan.graph.stream(stream).type.field("tokens") is None:
                records, seen = self.seen.records.get(stream, (0.0, 0))
                total = (records + sum(sizes), seen + sum(samples))
                self.seen.records[stream] = total
            else:
                each = [size / n for size, n in zip(sizes, samples, strict=True) if n]
                self.seen.tokens.setdefault(stream, []).extend(each)

    def _weight(self, run: Run) -> float:
        """Of a gang's item: what its units weigh in the first stream that it reads."""
        stream = next(iter(run.inputs), "")
        known = [self._sizes.get((run.variant, run.step, stream, unit)) for unit in run.units]
        weights = [size for size in known if size is not None]
        if weights:
            return sum(weights) * len(known) / len(weights)
        # Units that filters have cut are known by what their samples weigh on average.
        mean = self.seen.tokens.get(stream, [1.0])
        return sum(map(len, run.samples)) * sum(mean) / len(mean)

    def _backward(self, message: Backward | BackwardDone) -> None:
        if isinstance(message, BackwardDone):
            run = self._runs[message.item]
            row = ((1.0, float(self._weight(run))), message.busy_s)
            self.seen.backwards.setdefault(run.task, []).append(row)

    def _generate(self, worker: str, message: Generate) -> None:
        calls = self._open.setdefault(worker, {})
        # A busy engine looks at its messages after the answer that it works on.
        turn = self._answers.get(worker, 0) + bool(calls)
        for call in message.calls:
            prompt = len(call[2]) // TOKEN_BYTES
            calls[(message.origin, call[0])] = OpenCall(prompt, turn)
            self._agents[(message.origin, call[0])] = message.agent
            self.seen.prompts.setdefault(message.agent, []).append(float(prompt))

    def _generated(self, worker: str, message: Generated) -> None:
        """Between two answers an engine has prefilled what was new, and decoded all that ran.

        How often: until the call that ends had its tokens. Calls beyond the slots have waited.
        """
        group = self._groups[worker]
        rows = self.seen.engines.setdefault(group.name, [])
        same = message.busy_s == 0.0 and bool(rows)  # another origin's share of one answer
        calls = self._open.setdefault(worker, {})
        known = [c for c in message.completions if (message.origin, c[0]) in calls]
        if not known:
            return  # of a process that was lost meanwhile
        done = [calls[(message.origin, completion[0])] for completion in known]
        now = max([self._answers.get(worker, 0) - same, *(call.turn for call in done)])
        self._answers[worker] = now + 1
        running = list(islice((call for call in calls.values() if call.turn <= now), group.slots))
        iterations = 0
        for completion, call in zip(known, done, strict=True):
            identity = (message.origin, completion[0])
            tokens = len(completion[1]) // TOKEN_BYTES
            del calls[identity]
            self.seen.responses.setdefault(self._agents.pop(identity), []).append(float(tokens))
            iterations = max(iterations, tokens - 1 - call.decoded)
        fresh = [call for call in running if call.fresh]
        for call in running:
            call.fresh = False
            call.decoded += iterations
        prompts = float(sum(call.prompt for call in fresh))
        amounts = (float(bool(fresh)), prompts, float(iterations), float(iterations * len(running)))
        if same:
            before, seconds = rows.pop()
            both = zip(before, amounts, strict=True)
            rows.append((tuple(x + y for x, y in both), seconds))
        else:
            rows.append((amounts, message.busy_s))
