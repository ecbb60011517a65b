"""The graph that a user declares: what starts a flow, and what owns weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from flowgraph.dsl import evaluation, transforms
from flowgraph.dsl.complete import check_complete
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import AnyFunction, refer
from flowgraph.dsl.location import refuse, user_line
from flowgraph.dsl.models import AgentRef, ModelRef, ModuleRef
from flowgraph.dsl.plain import plain
from flowgraph.dsl.stream import Stream, Train
from flowgraph.dsl.units import Calls, one_of, real, whole
from flowgraph.ir import graph as ir

_DTYPES = ("float32", "bfloat16", "float16", "float64")


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
        role = f"module '{name}'"
        if not isinstance(model, ModelRef):
            raise refuse(f"{role}: expects fg.model(factory, ...), got {type(model).__name__}")
        if isinstance(trainable, str):
            raise refuse(f"{role}: trainable lists patterns", hint=f"trainable=[{trainable!r}]")
        patterns = trainable if isinstance(trainable, bool) else tuple(map(str, trainable))
        name = self.draft.claim("module", name, name)
        self.draft.modules[name] = ir.Module(
            name=name,
            factory=model.factory,
            # No pattern matches no parameter.
            trainable=patterns if patterns != () else False,
            dtype=one_of(dtype, f"{role}: dtype", _DTYPES),
            description=model.description,
            at=user_line(),
        )
        return ModuleRef(self.draft, name)

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
        role = f"agent '{name}'"
        self.draft.claim("agent", name, name)
        before = [after] if isinstance(after, AgentRef) else list(after)
        if isinstance(model, ModelRef):
            if name in self.draft.modules:
                raise refuse(
                    f"{role}: module '{name}' is declared already ({self.draft.modules[name].at})",
                    hint="hand over that module, or name the agent differently",
                )
            module = None
            description = model.description
        elif isinstance(model, ModuleRef) and model.draft is self.draft:
            module = model
            description = dict(self.draft.modules[model.name].description)
        else:
            raise refuse(f"{role}: expects fg.model(...) or a module of this graph, got {model!r}")
        sampling = _sampling(role, description, temperature, max_tokens, max_length, stop)
        reference = _tokenizer(tokenizer, role)
        for other in before:
            if not isinstance(other, AgentRef) or other.draft is not self.draft:
                raise refuse(f"{role}: after lists agents of this graph, got {other!r}")
        if module is None:
            assert isinstance(model, ModelRef)
            module = self.module(name, model)
        self.draft.agents[name] = ir.Agent(
            name=name,
            module=module.name,
            sampling=sampling,
            expect=expect.data() if expect else {},
            after=tuple(other.name for other in before),
            tokenizer=reference,
            at=user_line(),
        )
        return AgentRef(self.draft, name, module)

    def source(
        self,
        name: str,
        function: AnyFunction,
        *,
        at_end: Literal["loop", "drop", "short"] = "loop",
        shuffle: bool = False,
        type: Any = None,
        devices: int = 0,
        **params: Any,
    ) -> Stream:
        """Start a flow: `function(**params) -> Sequence[Task]`, or an iterable with state_dict.

        Task is a dataclass, TypedDict or NamedTuple; its fields are the stream's. A sample's id is
        its position. at_end: start over, leave the last short step out, or take it short. shuffle:
        a new order each epoch. type: Task, where the function is not annotated.

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


def _sampling(
    role: str,
    description: Mapping[str, Any],
    temperature: float,
    max_tokens: int | None,
    max_length: int | None,
    stop: Sequence[int],
) -> dict[str, Any]:
    """The agent's sampling as plain data, bounded by what its model holds."""
    holds = description.get("max_length")
    length = max_length if max_length is not None else holds
    if length is None:
        raise refuse(
            f"{role}: the model does not say how many tokens it holds",
            hint="max_length=512, for prompt and response together",
        )
    length = whole(length, f"{role}: max_length, in tokens", least=2)
    if holds is not None and length > holds:
        raise refuse(
            f"{role}: max_length={length}, but the model holds {holds} tokens",
            hint=f"max_length={holds}, or a model with max_length={length}",
        )
    sampling = {
        "temperature": real(temperature, f"{role}: temperature", least=0),
        "max_length": length,
        "stop": tuple(whole(token, f"{role}: stop, a token id", least=0) for token in stop),
    }
    if max_tokens is None:
        return sampling
    tokens = whole(max_tokens, f"{role}: max_tokens", least=1)
    if tokens >= length:
        raise refuse(
            f"{role}: max_tokens={tokens} leaves no room for a prompt in max_length={length}",
            hint=f"max_tokens={length // 2}",
        )
    return {**sampling, "max_tokens": tokens}


def _tokenizer(tokenizer: Any, role: str) -> ir.FunctionRef | None:
    """How workers make the tokenizer: its class and its fields, or a factory by name."""
    if tokenizer is None:
        return None
    if isinstance(tokenizer, ModelRef):
        return tokenizer.factory
    kind = type(tokenizer)
    if is_dataclass(tokenizer) and not isinstance(tokenizer, type):
        params = {f.name: getattr(tokenizer, f.name) for f in fields(tokenizer) if f.init}
        return refer(kind, params, role=f"{role}: tokenizer")
    raise refuse(
        f"{role}: tokenizer: expects a dataclass of plain data, got {kind.__name__}",
        hint='flowgraph.tokenizers.CharTokenizer("0123456789+-="), or '
        "fg.model(load_tokenizer, path=...) for a factory",
    )
