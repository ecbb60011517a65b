"""Streams: what a user chains stages on. Each method records one stage and returns its stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from flowgraph.algorithms.algorithm import Algorithm
from flowgraph.dsl import encoding, evaluation, interaction, structure, training, transforms
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.fields import TensorType
from flowgraph.dsl.functions import AnyFunction
from flowgraph.dsl.location import refuse
from flowgraph.dsl.models import AgentRef, ModuleRef
from flowgraph.dsl.optimizers import Optimizer, Schedule, constant
from flowgraph.dsl.units import Tokens, tokens
from flowgraph.ir.types import RecordType

OverLong = Literal["error", "drop", "truncate", "split"]


@dataclass(frozen=True, slots=True)
class Train:
    """A declared train stage, for `Graph.evaluate(of=...)`."""

    draft: Draft = field(repr=False, compare=False)
    name: str


@dataclass(frozen=True, slots=True)
class Stream:
    """Typed records on their way from one stage to others; any number of stages may read it.

    Methods raise GraphError at the caller's line for what can be known to be wrong then.
    """

    draft: Draft = field(repr=False, compare=False)
    name: str

    @property
    def type(self) -> RecordType:
        """Fields and key of its records."""
        return self.draft.streams[self.name].type

    def map(
        self,
        function: AnyFunction,
        *,
        name: str | None = None,
        batched: bool = False,
        type: Any = None,
        keeps: Sequence[str] = (),
        devices: int = 0,
        **params: Any,
    ) -> Stream:
        """One record to one record: `function(record, **params) -> Answer`.

        The record arrives as the class that the first parameter is annotated with; Answer is a
        dataclass, TypedDict or NamedTuple, and its fields replace the old ones; the key stays.
        keeps: old fields that stay too, handed on past the function; a filter that reads no others
        may then run before it.
        batched: the function takes and returns a dict of columns instead, and `type` is given.

        >>> questions.map(tokenize, max_length=32)
        """
        made = transforms.add_map(
            self.draft,
            self.name,
            function,
            params,
            name=name,
            batched=batched,
            type=type,
            keeps=keeps,
            devices=devices,
        )
        return Stream(self.draft, made.name)

    def filter(
        self,
        function: AnyFunction,
        *,
        name: str | None = None,
        batched: bool = False,
        expect: float = 1.0,
        reads: Sequence[str] = (),
        devices: int = 0,
        **params: Any,
    ) -> Stream:
        """Keep the records for which `function(record, **params)` is true.

        A step's samples are the first of the source's order that pass: it refills itself.
        expect: share that is kept, for planning. reads: the fields that the function is handed, by
        default those of the class that its first parameter is annotated with; all without either.

        >>> questions.filter(short_enough, expect=0.9, tokens=256)
        """
        made = transforms.add_filter(
            self.draft,
            self.name,
            function,
            params,
            name=name,
            batched=batched,
            expect=expect,
            reads=reads,
            devices=devices,
        )
        return Stream(self.draft, made.name)

    def group(
        self, by: str | Sequence[str] = "task", *, size: int = 0, name: str | None = None
    ) -> Stream:
        """Mark rows that share a key as one group, complete before anything behind sees it.

        by: key fields; the first is the sample, also called `task` or by its source's name. size:
        rows a group, 0 for all that share the key; else groups are consecutive rows of one key,
        whose rows the size must divide.

        >>> games.rows(solver).group(by="task")
        """
        made = structure.add_group(self.draft, self.name, by, size, name=name)
        return Stream(self.draft, made.name)

    def unnest(self, dim: str, *, expect: float = 1.0, name: str | None = None) -> Stream:
        """Each sample into its 0..n entries along a ragged dim; `join` brings them back.

        The items have the fields that start with this dim. expect: items a sample, for planning.

        >>> samples.unnest("images", expect=1.5).apply(vit)
        """
        made = structure.add_unnest(self.draft, self.name, dim, expect=expect, name=name)
        return Stream(self.draft, made.name)

    def apply(
        self,
        module: ModuleRef,
        *,
        inputs: Sequence[str] | None = None,
        output: str = "features",
        type: TensorType | None = None,
        name: str | None = None,
    ) -> Stream:
        """A module's forward over the records: encoder, reward model, reference.

        inputs: fields handed to the module, in order (all but the key). output: the field that
        the result becomes. type: its `fg.tensor(...)`, where the model's description does not tell.

        >>> samples.unnest("images").apply(vit)
        """
        _check_same_graph(self, module)
        made = encoding.add_apply(
            self.draft, self.name, module, inputs, output, type=type, name=name
        )
        return Stream(self.draft, made.name)

    encode = apply

    def join(self, *streams: Stream, placeholder: int = -1, name: str | None = None) -> Stream:
        """Each record with the fields that other streams have for the same key.

        Joining samples with items brings these back in item order. placeholder: the token whose
        embeddings the joined features replace in the model, one feature a token.

        >>> samples.join(features, placeholder=IMAGE)
        """
        for stream in streams:
            _check_same_graph(self, stream)
        others = [stream.name for stream in streams]
        made = structure.add_join(self.draft, self.name, others, placeholder, name=name)
        return Stream(self.draft, made.name)

    def pack(
        self,
        *,
        tokens: int | Tokens,
        over_long: OverLong = "error",
        cost: Literal["attention", "tokens"] = "attention",
        name: str | None = None,
    ) -> Stream:
        """Several samples a row of this many tokens, none seeing another.

        over_long: what a sample longer than a row does. cost: what rows are balanced by.

        >>> samples.join(features).pack(tokens=256)
        """
        made = structure.add_pack(self.draft, self.name, tokens, over_long, cost, name=name)
        return Stream(self.draft, made.name)

    def episodes(
        self,
        function: AnyFunction,
        *,
        agents: Sequence[AgentRef],
        trajectories: int,
        in_flight: int = 4,
        timeout_s: float = 300.0,
        on_timeout: Literal["fail", "drop"] = "fail",
        name: str | None = None,
        devices: int = 0,
        **params: Any,
    ) -> Episodes:
        """Multi-agent interaction: `async def function(task, *agents, **params) -> fg.Rewards`.

        It runs `trajectories` times a task and may call its agents as often as it likes, in any
        order, in parallel too. Parameters named like agents get those; else they go by position.
        in_flight: tasks at once. on_timeout: whether a trajectory that takes longer than
        `timeout_s` fails the run or drops its task.

        >>> games = tasks.episodes(play, agents=[solver, verifier], trajectories=16)
        """
        for agent in agents:
            _check_same_graph(self, agent)
        stage = interaction.add_episodes(
            self.draft,
            self.name,
            function,
            agents,
            params,
            trajectories=trajectories,
            in_flight=in_flight,
            timeout_s=timeout_s,
            on_timeout=on_timeout,
            name=name,
            devices=devices,
        )
        return Episodes(self.draft, stage.name, function)

    def train(
        self,
        module: ModuleRef,
        *encoders: ModuleRef,
        loss: Algorithm | AnyFunction,
        batch: int,
        optimizer: Optimizer,
        micro_batch: Tokens | int = tokens(4096),  # noqa: B008  # frozen
        schedule: Schedule = constant(),  # noqa: B008  # frozen
        clip: float = 1.0,
        updates: int = 1,
        staleness: int = 0,
        reference: ModuleRef | None = None,
        name: str | None = None,
    ) -> Train:
        """Learn from the records: the loss of `module`'s outputs, and an optimizer update.

        The records have `tokens` and, as long, `loss_mask`. encoders: modules applied upstream
        that are trained too. loss: an algorithm (`fg.grpo()`), or a function
        `(outputs, fields) -> (unnormalised sum, metrics)`. batch: source samples a step. updates:
        optimizer updates a step. clip: largest gradient norm, 0 for none. staleness: steps by which
        the weights that made a sample may lag behind those that learn from it. reference: the
        frozen module that the algorithm's `kl` pulls towards; declared with the same model, it is
        what `module` is before its first update. name: `train-<module>` by default.

        An algorithm that turns rewards into advantages needs a `group` upstream and gets a stage
        of its own, `<name>.credit`; unless the records have a field `advantage` already.

        >>> rows.group(by="task").train(
        ...     solver.module, loss=fg.grpo(entropy=0.05), batch=16, optimizer=fg.adam(2e-3)
        ... )
        """
        for one in (module, *encoders, *([reference] if reference else [])):
            _check_same_graph(self, one)
        stage = training.add_train(
            self.draft,
            self.name,
            module,
            encoders,
            loss,
            batch=batch,
            micro_batch=micro_batch,
            optimizer=optimizer,
            schedule=schedule,
            clip=clip,
            updates=updates,
            staleness=staleness,
            reference=reference,
            name=name,
        )
        return Train(self.draft, stage.name)

    def sink(
        self,
        function: AnyFunction,
        *,
        name: str | None = None,
        batched: bool = False,
        devices: int = 0,
        **params: Any,
    ) -> None:
        """Hand the records to `function(record, **params)` and forget them.

        >>> games.rows(verifier).sink(log_row, folder="rows")
        """
        transforms.add_sink(
            self.draft, self.name, function, params, name=name, batched=batched, devices=devices
        )


@dataclass(frozen=True, slots=True)
class Episodes:
    """A declared interaction: `rows` are the streams that come out of it."""

    draft: Draft = field(repr=False, compare=False)
    name: str
    function: AnyFunction = field(repr=False)

    def rows(self, agent: AgentRef) -> Stream:
        """The agent's calls, one a record: prompt and sampled tokens, trained as they are.

        >>> games.rows(solver).group(by="task").train(solver.module, ...)
        """
        _check_same_graph(self, agent)
        return Stream(self.draft, interaction.add_rows(self.draft, self.name, agent.name).name)

    def evaluate(
        self,
        name: str,
        *,
        every: int = 0,
        samples: int = 64,
        at_start: bool = True,
        **overrides: Any,
    ) -> None:
        """Play without learning, at step boundaries; rewards and metrics are the figures.

        every: steps between evaluations (0: the first and the last only). overrides: parameters
        of the function that differ, such as a constant verdict.

        >>> games.evaluate("always-accept", samples=64, verdict="accept")
        """
        role = f"evaluate '{name}'"
        checked = interaction.checked_overrides(
            self.draft, self.name, self.function, overrides, role=role
        )
        evaluation.add_evaluation(
            self.draft,
            name,
            of=self.name,
            every=every,
            samples=samples,
            at_start=at_start,
            overrides=checked,
        )


def _check_same_graph(
    mine: Stream | Episodes, other: Stream | ModuleRef | AgentRef | Train
) -> None:
    if other.draft is not mine.draft:
        raise refuse(
            f"'{other.name}' belongs to graph '{other.draft.name}', "
            f"'{mine.name}' to '{mine.draft.name}'",
            hint="declare both on one graph",
        )
