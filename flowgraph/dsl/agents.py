"""Agents: a module's use in rollout, how its tokens are drawn, and what it is expected to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import refer
from flowgraph.dsl.location import refuse, user_line
from flowgraph.dsl.models import AgentRef, ModelRef, ModuleRef, add_module
from flowgraph.dsl.units import Calls, real, whole
from flowgraph.ir.graph import Agent, FunctionRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an agent's tokens are drawn, as the user gave it; `data` checks it."""

    temperature: float
    max_tokens: int | None
    max_length: int | None
    stop: Sequence[int]

    def data(self, description: Mapping[str, Any], role: str) -> dict[str, Any]:
        """As plain data, bounded by what the described model holds."""
        length = self._length(description.get("max_length"), role)
        sampling = {
            "temperature": real(self.temperature, f"{role}: temperature", least=0),
            "max_length": length,
            "stop": tuple(
                whole(token, f"{role}: stop, a token id", least=0) for token in self.stop
            ),
        }
        if self.max_tokens is None:
            return sampling
        tokens = whole(self.max_tokens, f"{role}: max_tokens", least=1)
        if tokens >= length:
            raise refuse(
                f"{role}: max_tokens={tokens} leaves no room for a prompt in max_length={length}",
                hint=f"max_tokens={length // 2}",
            )
        return {**sampling, "max_tokens": tokens}

    def _length(self, holds: int | None, role: str) -> int:
        """Tokens of prompt and response together; `holds`: how many the model can take."""
        length = self.max_length if self.max_length is not None else holds
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
        return length


def add_agent(
    draft: Draft,
    name: str,
    model: ModelRef | ModuleRef,
    *,
    expect: Calls | None,
    after: Sequence[AgentRef],
    sampling: Sampling,
    tokenizer: Any,
) -> AgentRef:
    """Record an agent, and for a model a trainable module of the agent's name."""
    role = f"agent '{name}'"
    name = draft.claim("agent", name, name)
    drawn = sampling.data(_description(draft, name, model, role), role)
    reference = _tokenizer(tokenizer, role)
    for other in after:
        if not isinstance(other, AgentRef) or other.draft is not draft:
            raise refuse(f"{role}: after lists agents of this graph, got {other!r}")
    if isinstance(model, ModelRef):
        model = add_module(draft, name, model, trainable=True, dtype="float32")
    draft.agents[name] = Agent(
        name=name,
        module=model.name,
        sampling=drawn,
        expect=expect.data() if expect else {},
        after=tuple(other.name for other in after),
        tokenizer=reference,
        at=user_line(),
    )
    return AgentRef(draft, name, model)


def _description(
    draft: Draft, name: str, model: ModelRef | ModuleRef, role: str
) -> Mapping[str, Any]:
    """What is known of the agent's model, which must be new or of this graph."""
    if isinstance(model, ModelRef):
        if name in draft.modules:
            raise refuse(
                f"{role}: module '{name}' is declared already ({draft.modules[name].at})",
                hint="hand over that module, or name the agent differently",
            )
        return model.description
    if isinstance(model, ModuleRef) and model.draft is draft:
        return draft.modules[model.name].description
    raise refuse(f"{role}: expects fg.model(...) or a module of this graph, got {model!r}")


def _tokenizer(tokenizer: Any, role: str) -> FunctionRef | None:
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
