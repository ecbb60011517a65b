"""One mutant read: what must hold of it."""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgpack

from flowgraph.inspect.facts import facts_of
from flowgraph.inspect.text import told
from flowgraph.ir.binary import MAGIC, SCHEMA, decode, encode
from flowgraph.ir.cluster import Cluster
from flowgraph.ir.diagnostics import render
from flowgraph.ir.errors import ConfigurationError, FlowgraphError, InternalError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plain import to_plain
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import parse, print_text
from flowgraph.ir.verify import verify_cluster, verify_flow, verify_plan
from flowgraph.passes import compile_graph
from flowgraph.passes.explain import explain
from tests.fuzz.mutants import spoil_bytes, spoil_data, spoil_text
from tests.fuzz.retyped import spoil_typed, words_of
from tests.passes.graphs import gpus, laptop, marl
from tests.passes.test_semantics import load

SLOWEST = 5.0
"""Processor seconds that reading one mutant may take: a hang, not a slow machine."""

KINDS = ("text", "text", "bytes", "signed", "data", "typed", "typed")
"""How mutants are made; `data` and `typed` keep the structure of a file."""


@dataclass(slots=True)
class Corpus:
    """What is spoiled: small plans and graphs, in all their forms."""

    plans: tuple[Plan, ...] = ()
    texts: tuple[str, ...] = ()
    plains: tuple[dict[str, object], ...] = ()
    files: tuple[bytes, ...] = ()
    words: tuple[str, ...] = ()
    outcomes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def small(cls) -> "Corpus":
        graph = load("twins")
        plans = tuple(
            replace(plan, decisions=plan.decisions[:4])  # more of the same costs time only
            for plan in (compile_graph(graph, laptop()), compile_graph(marl(), gpus(1, 3)))
        )
        return cls(
            plans=plans,
            texts=(print_text(graph), print_text(laptop()), print_text(plans[0])),
            plains=tuple(map(to_plain, plans)),
            files=tuple(map(encode, plans)),
            words=tuple(sorted(set(words_of(plans)))),
        )


def trial(corpus: Corpus, seed: int) -> None:
    """Read one mutant. AssertionError, or any error that is not ours, for a broken promise."""
    draw = random.Random(seed)
    kind = draw.choice(KINDS)
    read = _READERS[kind](corpus, draw)
    began = time.process_time()
    try:
        found = read()
    except InternalError:
        raise
    except FlowgraphError as error:
        _check_words(error)
        outcome = "refused"
    else:
        if kind == "bytes":
            assert found in corpus.plans, "a damaged file was believed"
        _same_meaning(found)
        outcome = _verified(found)
    spent = time.process_time() - began
    assert spent < SLOWEST, f"took {spent:.1f} s"
    corpus.outcomes[f"{kind}: {outcome}"] += 1


Reader = Callable[[], Graph | Plan | Cluster]


def _text(corpus: Corpus, draw: random.Random) -> Reader:
    text = spoil_text(draw.choice(corpus.texts), draw)
    return lambda: parse(text)


def _bytes(corpus: Corpus, draw: random.Random) -> Reader:
    data = spoil_bytes(draw.choice(corpus.files), draw)
    return lambda: decode(data)


def _signed(corpus: Corpus, draw: random.Random) -> Reader:
    """Spoiled behind the digest, which is made anew: the reader must look at all of it."""
    file = draw.choice(corpus.files)
    start = len(MAGIC) + 2 + 32
    data = _sign(spoil_bytes(file[start:], draw))
    return lambda: decode(data)


def _data(corpus: Corpus, draw: random.Random) -> Reader:
    """Spoiled plain data, well packed: the structure of the file is kept."""
    plain = draw.choice(corpus.plains)
    while (body := _packed(spoil_data(plain, draw))) is None:
        pass
    data = _sign(body)
    return lambda: decode(data)


def _typed(corpus: Corpus, draw: random.Random) -> Reader:
    """Other values of the right types, in a file with the right digest."""
    plan = spoil_typed(draw.choice(corpus.plans), corpus.words, draw)
    data = _written(plan)
    return (lambda: decode(data)) if data is not None else (lambda: parse(print_text(plan)))


def _packed(plain: object) -> bytes | None:
    """None for what msgpack cannot say: then no file can."""
    try:
        packed: bytes = msgpack.packb(plain)
    except (OverflowError, ValueError):
        return None
    return packed


def _sign(body: bytes) -> bytes:
    version = SCHEMA.to_bytes(2, "little")
    return MAGIC + version + hashlib.sha256(body).digest() + body


_READERS: dict[str, Callable[[Corpus, random.Random], Reader]] = {
    "text": _text,
    "bytes": _bytes,
    "signed": _signed,
    "data": _data,
    "typed": _typed,
}


def _same_meaning(found: Graph | Plan | Cluster) -> None:
    """What was read is what it says: both forms give it back unchanged."""
    text = print_text(found)
    # Compared as text: a value may hold nan, which is not equal to itself.
    assert print_text(parse(text)) == text, "the text form changed it"
    if isinstance(found, Plan):
        written = _written(found)
        kept = written is None or print_text(decode(written)) == text
        assert kept, "the binary form changed it"


def _written(plan: Plan) -> bytes | None:
    """The binary form, or None where a number is too large for it, which it says."""
    try:
        return encode(plan)
    except ConfigurationError as error:
        _check_words(error)
        return None


def _check_words(error: FlowgraphError, graph: object = None) -> None:
    """An error says something, and can be shown in the graph."""
    if not str(error).strip():
        raise AssertionError("an error without words")
    if isinstance(graph, Graph) and not render(error, graph).strip():
        raise AssertionError("an error without a picture")


def _verified(found: Graph | Plan | Cluster) -> str:
    """Legal, or refused by a rule; a legal plan can be explained, at length too."""
    graph = found.graph if isinstance(found, Plan) else found
    try:
        if isinstance(graph, Graph):
            verify_flow(graph)
        else:
            verify_cluster(graph)
        if isinstance(found, Plan):
            verify_plan(found)
    except FlowgraphError as error:
        _check_words(error, graph)
        return "not legal"
    if isinstance(found, Plan):
        assert explain(found).strip()
        assert told(facts_of(found)).strip()
    return _compiled(graph) if isinstance(found, Graph) else "legal"


def _compiled(graph: Graph | Cluster) -> str:
    """A legal graph becomes a plan, or a pass refuses it by name."""
    assert isinstance(graph, Graph)
    try:
        compile_graph(graph, laptop())
    except InternalError:
        raise
    except FlowgraphError as error:
        _check_words(error, graph)
        return "legal, refused by a pass"
    return "legal"
