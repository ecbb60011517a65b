"""What an episode's function sees of an agent: something that answers prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An answer. tokens: the sampled ids, a stop token included; logprobs: one a token.

    tokenizer: the agent's, for `text`.
    """

    tokens: list[int]
    logprobs: list[float]
    tokenizer: Any = None

    @property
    def text(self) -> str:
        """The tokens decoded. Raises ValueError for an agent without a tokenizer."""
        if self.tokenizer is None:
            raise ValueError("the agent has no tokenizer: give it one, or read .tokens")
        return str(self.tokenizer.decode(self.tokens))


class Agent(Protocol):
    """An agent within one trajectory."""

    @property
    def name(self) -> str: ...

    @property
    def tokenizer(self) -> Any:
        """The agent's tokenizer, or None when the graph names none."""
        ...

    async def generate(
        self,
        prompt: Sequence[int] | Sequence[dict[str, Any]] | str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[int] | None = None,
        allowed: Sequence[int] | None = None,
    ) -> Generation:
        """Samples an answer to the prompt: token ids, or text or messages for the tokenizer.

        max_tokens, temperature, stop, allowed: in place of the agent's own; `allowed` are the
        only ids that may be sampled. Every call becomes one row of the agent's table, trained on
        exactly these tokens; a call that is trained on takes neither `allowed` nor another
        temperature, except in evaluations. Text and messages are for `tokenizer.encode(text)` and
        `tokenizer.chat(messages)`. Raises ValueError for an empty prompt, or one that leaves no
        room for max_tokens within the agent's max_length.
        """
        ...
