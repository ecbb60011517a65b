"""One run of an episode's function: its calls, their identities, and when answers are handed over.

**Lockstep.** A trajectory may have several calls open at once (`asyncio.gather`). Answers are held
back until all of its open calls are answered, and then handed over together, in the order in which
the calls were made. So the function sees the same answers at the same points whatever the order in
which engines finish, and by induction makes the same calls in the same order: the order of calls,
the ordinals among identical prompts and hence all randomness depend on the answers only. Between
trajectories nothing is shared, and each goes at its own speed.

Assumes that the loop runs until nothing is ready before further answers are delivered (`run_ready`
does), and that within one trajectory the function does not race calls against the wall clock.
A function that makes one call at a time waits for nobody.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from flowgraph.ir import graph as ir
from flowgraph.runtime.engine.interface import Call, Completion, Sampling
from flowgraph.runtime.randomness import key
from flowgraph.runtime.stages.agents import Generation
from flowgraph.runtime.stages.calls import CallPort


@dataclass(slots=True)
class Turn:
    """One call and, later, its answer. `handed` is what the user's coroutine waits on."""

    agent: str
    prompt: NDArray[np.int64]
    answer: asyncio.Future[Completion]
    handed: asyncio.Future[Completion]


class Trajectory:
    """The calls of one trajectory, in the order in which they were made.

    identity: what every call's key starts with: run seed, variant, sample id and trajectory.
    """

    def __init__(self, port: CallPort, identity: tuple[int | str, ...]) -> None:
        self._port = port
        self._identity = identity
        self._ordinals: Counter[tuple[str, bytes]] = Counter()
        self._open: list[Turn] = []
        self.turns: list[Turn] = []

    async def ask(self, agent: str, prompt: NDArray[np.int64], sampling: Sampling) -> Completion:
        """Issues a call and waits for its answer, in lockstep."""
        digest = xxhash.xxh3_128_digest(prompt.tobytes())
        ordinal = self._ordinals[agent, digest]
        self._ordinals[agent, digest] += 1
        call = Call(
            id=self._port.number(),
            key=key(*self._identity, agent, digest, ordinal),
            prompt=prompt,
            sampling=sampling,
        )
        answer = self._port.generate(agent, call)
        turn = Turn(agent, prompt, answer, asyncio.get_running_loop().create_future())
        self.turns.append(turn)
        self._open.append(turn)
        answer.add_done_callback(self._answered)
        try:
            return await turn.handed
        except asyncio.CancelledError:
            answer.cancel()  # also lets go of the others that wait for this one
            raise

    def answered(self) -> list[tuple[Turn, Completion]]:
        """The calls whose answers were handed over, in order; one given up before makes no row."""
        return [
            (turn, turn.handed.result())
            for turn in self.turns
            if turn.handed.done() and not turn.handed.cancelled()
        ]

    def close(self) -> None:
        """Gives up all open calls."""
        for turn in self._open:
            turn.answer.cancel()

    def _answered(self, _: asyncio.Future[Completion]) -> None:
        if not all(turn.answer.done() for turn in self._open):
            return
        ready, self._open = self._open, []
        for turn in ready:
            _hand_over(turn)


def _hand_over(turn: Turn) -> None:
    if turn.handed.done():
        return
    if turn.answer.cancelled():
        turn.handed.cancel()
    elif (error := turn.answer.exception()) is not None:
        turn.handed.set_exception(error)
    else:
        turn.handed.set_result(turn.answer.result())


class Speaker:
    """The agent object of one trajectory (see `agents.Agent`).

    learns: the agent is trained on what it says here.
    """

    __slots__ = ("_learns", "_spec", "_trajectory", "tokenizer")

    def __init__(
        self, spec: ir.Agent, tokenizer: Any, trajectory: Trajectory, *, learns: bool = False
    ) -> None:
        self._spec = spec
        self._trajectory = trajectory
        self._learns = learns
        self.tokenizer = tokenizer

    @property
    def name(self) -> str:
        return self._spec.name

    async def generate(
        self,
        prompt: Sequence[int] | Sequence[dict[str, Any]] | str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[int] | None = None,
        allowed: Sequence[int] | None = None,
    ) -> Generation:
        """See `agents.Agent.generate`."""
        given = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": stop,
            "allowed": allowed,
        }
        if self._learns:
            _require_own_distribution(self._spec, allowed, temperature)
        ids = self._ids(prompt)
        sampling = sampling_of(self._spec, given, ids.size)
        answer = await self._trajectory.ask(self.name, ids, sampling)
        return Generation(
            tokens=answer.tokens.tolist(),
            logprobs=answer.logprobs.tolist(),
            tokenizer=self.tokenizer,
        )

    def _ids(self, prompt: Sequence[Any] | str) -> NDArray[np.int64]:
        given: Any = prompt
        if isinstance(prompt, str):
            given = self._tokenizer("text").encode(prompt)
        elif len(prompt) and isinstance(prompt[0], dict):
            given = self._tokenizer("messages").chat(prompt)
        ids = np.asarray(given)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise ValueError(f"agent '{self.name}': a prompt is a list of token ids, got {given!r}")
        return ids.astype(np.int64)

    def _tokenizer(self, what: str) -> Any:
        if self.tokenizer is None:
            raise ValueError(f"agent '{self.name}': {what} as a prompt needs a tokenizer")
        return self.tokenizer


def _require_own_distribution(
    spec: ir.Agent, allowed: Sequence[int] | None, temperature: float | None
) -> None:
    """A policy gradient needs tokens drawn from the distribution that the trainer scores.

    That is the agent's own, over all tokens: log-probs of another one would make ratios of two
    distributions that never were one another's versions. Raises ValueError.
    """
    if allowed:
        raise ValueError(
            f"agent '{spec.name}': `allowed` restricts a call that the agent is trained on, but "
            "its trainer scores all tokens: let it learn what to say, limit what its model can say "
            "(`outputs` of a decoder), or ask an agent that is not trained"
        )
    own = float(spec.sampling.get("temperature", 1.0))
    if temperature is not None and temperature != own:
        raise ValueError(
            f"agent '{spec.name}': temperature {temperature:g} for a call that the agent is "
            f"trained on, but its trainer scores tokens at {own:g}, where the agent is declared"
        )


def sampling_of(spec: ir.Agent, given: dict[str, Any], prompt: int) -> Sampling:
    """The agent's sampling with what the call gave in its place.

    Raises ValueError when prompt and max_tokens together exceed the agent's max_length.
    """
    chosen = {**spec.sampling, **{name: v for name, v in given.items() if v is not None}}
    longest = int(chosen.get("max_length", 0))
    if not longest and "max_tokens" not in chosen:
        raise ValueError(f"agent '{spec.name}': max_tokens is neither declared nor given")
    wanted = int(chosen.get("max_tokens", longest - prompt))
    if wanted < 1 or (longest and prompt + wanted > longest):
        raise ValueError(
            f"agent '{spec.name}': a prompt of {prompt} tokens and max_tokens {wanted} do not fit "
            f"max_length {longest}"
        )
    return Sampling(
        max_tokens=wanted,
        temperature=float(chosen.get("temperature", 1.0)),
        stop=tuple(int(token) for token in chosen.get("stop", ())),
        allowed=tuple(int(token) for token in chosen.get("allowed", ())),
    )
