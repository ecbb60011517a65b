"""The graph that a user declares: what starts a flow, and what owns weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from flowgraph.dsl import evaluation, transforms
from flowgraph.dsl.agents import Sampling, add_agent
from flowgraph.dsl.complete import check_complete
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import AnyFunction
from flowgraph.dsl.location import refuse
from flowgraph.dsl.models import AgentRef, ModelRef, ModuleRef, add_module
from flowgraph.dsl.plain import plain
from flowgraph.dsl.stream import Stream, Train
from flowgraph.dsl.units import Calls, Spread, whole
from flowgraph.ir import graph as ir


class Graph:
    """A training as a dataflow graph, declared top to bottom as the data flows.

    name: of the run directory and the plan. steps: how many a run takes unless told. seed: all
    randomness of a run derives from it. cluster: a default cluster file. pins: see `pin`.

    >>> def build(batch: int = 16) -> fg.Graph:
    ...     g = fg.Graph("sorting", steps=200)
    ...     lm = g.module("lm", fg.model(decoder, vocab=32, layers=2, width=64, heads=4))
    ...     lists = g.source("lists", sorting_tasks, length=8)
    ...     lists.train(lm, loss=fg.token_cross_entropy(), batch=batch, optimizer=fg.adamw(1e-3))
    ...     return g
    """

    __slots__ = ("draft",)

    def __init__(
        self,
        name: str,
        *,
        steps: int = 100,
        seed: int = 0,
        cluster: str = "",
        pins: Mapping[str, Any] | None = None,
    ) -> None:
        if not name or "/" in name or name.startswith("."):
            raise refuse(f"a graph's name names a folder, got {name!r}", hint='"my-training"')
        self.draft = Draft(
            name=name,
            steps=whole(steps, f"graph '{name}': steps", least=1),
            seed=whole(seed, f"graph '{name}': seed", least=0),
            cluster=str(cluster),
        )
        for decision, value in (pins or {}).items():
            self.pin(decision, value)

    @property
    def name(self) -> str:
        return self.draft.name

    def module(
        self,
        name: str,
        model: ModelRef,
        *,
        trainable: bool | Sequence[str] = True,
        dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32",
    ) -> ModuleRef:
        """Declare weights.

        trainable: wholly, not at all, or the parameters whose names match one of these patterns.

        >>> vit = g.module("vit", fg.model(fg.models.vit, layers=2, width=64, heads=4))
        """
        return add_module(self.draft, name, model, trainable=trainable, dtype=dtype)

    def agent(
        self,
        name: str,
        model: ModelRef | ModuleRef,
        *,
        expect: Calls | None = None,
        after: AgentRef | Sequence[AgentRef] = (),
        temperature: float = 1.0,
        max_tokens: int | None = None,
        max_length: int | None = None,
        stop: Sequence[int] = (),
        tokenizer: Any = None,
    ) -> AgentRef:
        """Declare a module's use in rollout; agents may share a module.

        A model instead of a module makes a trainable module of the agent's name.

        expect: calls a trajectory and their lengths, for planning. after: agents whose calls come
        before this one's, for planning. temperature: 0 takes the likeliest token. max_length:
        tokens of prompt and response together (by default what the model is described to hold).
        max_tokens: tokens sampled a call (by default what the prompt leaves). stop: token ids that
        end a response. tokenizer: a frozen dataclass of plain data, given to the interaction.

        >>> verifier = g.agent("verifier", fg.model(decoder, ...), after=solver, stop=[EOS])
        """
        return add_agent(
            self.draft,
            name,
            model,
            expect=expect,
            after=[after] if isinstance(after, AgentRef) else list(after),
            sampling=Sampling(
                temperature=temperature, max_tokens=max_tokens, max_length=max_length, stop=stop
            ),
            tokenizer=tokenizer,
        )

    def source(
        self,
        name: str,
        function: AnyFunction,
        *,
        at_end: Literal["loop", "drop", "short"] = "loop",
        shuffle: bool = False,
        type: Any = None,
        expect: Mapping[str, float | Spread] | None = None,
        devices: int = 0,
        **params: Any,
    ) -> Stream:
        """Start a flow: `function(**params) -> Sequence[Task]`, or an iterable with state_dict.

        Task is a dataclass, TypedDict or NamedTuple; its fields are the stream's. A sample's id is
        its position. at_end: start over, leave the last short step out, or take it short. shuffle:
        a new order each epoch. type: Task, where the function is not annotated. expect: entries of
        a sample in each ragged dim, for planning: `{"tokens": 900, "patches": fg.spread(...)}`.

        >>> tasks = g.source("tasks", arithmetic, operands=4)
        """
        made = transforms.add_source(
            self.draft,
            name,
            function,
            params,
            at_end=at_end,
            shuffle=shuffle,
            type=type,
            expect=expect or {},
            devices=devices,
        )
        return Stream(self.draft, made.name)

    def evaluate(
        self,
        name: str,
        metric: AnyFunction,
        *,
        source: AnyFunction | None = None,
        of: Train | None = None,
        every: int = 0,
        samples: int = 256,
        at_start: bool = True,
        **source_params: Any,
    ) -> None:
        """Figures of a train stage at step boundaries: `metric(outputs, fields)`, no learning.

        of: the train stage (the only one by default). source: a function that stands for its
        source, with its parameters. every: steps between evaluations (0: the first and the last
        only). The metric returns {name: (sum, count)}.

        >>> g.evaluate("held-out", exact_match, source=digits, split="test", every=200)
        """
        train = evaluation.evaluated_train(self.draft, name, of.name if of else None)
        if source is None and source_params:
            given = ", ".join(source_params)
            raise refuse(f"evaluate '{name}': {given} given, but no source that would take it")
        held_out = None
        if source is not None:
            held_out = evaluation.held_out(self.draft, name, train, source, source_params)
        evaluation.add_evaluation(
            self.draft,
            name,
            of=train,
            every=every,
            samples=samples,
            at_start=at_start,
            metric=evaluation.metric_of(metric, name),
            source=held_out,
        )

    def pin(self, decision: str, value: int | float | str | bool) -> None:
        """Fix one decision of the compiler's, which then says `pinned` in the plan.

        >>> g.pin("solver.engines", 2)
        """
        subject, dot, what = decision.rpartition(".")
        if not dot or not subject or not what:
            raise refuse(f"pin '{decision}': expects 'subject.decision'", hint='"solver.engines"')
        known = self.draft.pins.get(decision)
        if known is not None and known != value:
            raise refuse(f"pin '{decision}': pinned to {known!r} already, now to {value!r}")
        self.draft.pins[decision] = plain(value, f"pin '{decision}'")

    def ir(self, *, root: str | None = None, settings: Mapping[str, Any] | None = None) -> ir.Graph:
        """The graph as plain data, once it is complete.

        root: the folder that files are named relative to (their common folder by default).
        settings: what it was built with. Raises GraphError for a stream that nothing reads and
        for a module that nothing uses, at the line that declared it.
        """
        check_complete(self.draft)
        return self.draft.finish(root=root, settings=plain(dict(settings or {}), "settings"))
