"""The graph as lines of text: a tree of stages that flow down, a branch for each reader."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flowgraph.inspect.stage_words import stage_words
from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.index import Index, index
from flowgraph.passes.words import listed

MOST_LINES = 60
"""Stages drawn; whoever has more looks at the page, or at the text form."""

NAME_WIDTH = 34
"""Columns of branches and names; longer ones push their words to the right."""

WIDTH, LEAST_WORDS = 98, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Branches and name on the left, what the stage does on the right; below: branches alone."""

    left: str
    below: str
    op: str
    words: str


def text_picture(graph: Graph) -> str:
    """A line a stage; stages that only evaluate, and edges against the flow, stand below."""
    at = index(graph)
    children = _tree(at)
    roots = [stage for stage in graph.stages if not at.parents(stage) and stage.op != "evaluate"]
    flow = [found for root in roots for found in _drawn(root, children)]
    tried = [("", "", stage) for stage in graph.by_op("evaluate")]
    shown = flow[:MOST_LINES]
    told = _columns(
        [
            Line(left=f"{first}{s.name}", below=rest, op=s.op, words=stage_words(s, graph))
            for first, rest, s in (*shown, *tried[:MOST_LINES])
        ]
    )
    drawn = [line for own in told[: len(shown)] for line in own]
    evaluated = [line for own in told[len(shown) :] for line in own]
    if len(flow) > len(shown):
        drawn.append(f"... and {len(flow) - len(shown)} stages more")
    backs = list(_backs(graph))
    return "\n".join([*drawn, *evaluated, *(["", *backs[:MOST_LINES]] if backs else [])])


def _columns(lines: Sequence[Line]) -> list[list[str]]:
    """Each line's lines: words that are too long go on below themselves."""
    left = min(NAME_WIDTH, max((len(line.left) for line in lines), default=0))
    op = max((len(line.op) for line in lines), default=0)
    found = []
    for line in lines:
        words = textwrap.wrap(line.words, max(LEAST_WORDS, WIDTH - left - op - 4))
        first = f"{line.left:<{left}}  {line.op:<{op}}  {words[0] if words else ''}".rstrip()
        more = [f"{line.below:<{left}}  {'':<{op}}    {text}" for text in words[1:]]
        found.append([first, *more])
    return found


def _tree(at: Index) -> dict[str, list[Stage]]:
    """By stage, those that hang below it: of what a stage reads the shallowest carries it.

    In declaration order, so that a join of branches follows them.
    """
    depth: dict[str, int] = {}
    below: dict[str, list[Stage]] = {}
    for stage in at.graph.stages:
        parents = [parent for parent in at.parents(stage) if parent.name in depth]
        depth[stage.name] = 1 + max((depth[parent.name] for parent in parents), default=-1)
        if parents and stage.op != "evaluate":
            carrier = min(parents, key=lambda parent: depth[parent.name])
            below.setdefault(carrier.name, []).append(stage)
    return below


def _drawn(root: Stage, children: dict[str, list[Stage]]) -> Iterator[tuple[str, str, Stage]]:
    """Branches before each stage and below it; an only child stands right below its parent."""
    waiting = [(root, "", "")]
    while waiting:
        stage, first, rest = waiting.pop()
        own = children.get(stage.name, [])
        yield first, rest + ("│" if len(own) > 1 else ""), stage
        if len(own) == 1:
            waiting.append((own[0], rest, rest))
            continue
        for child in reversed(own):
            last = child is own[-1]
            waiting.append(
                (child, rest + ("└▶ " if last else "├▶ "), rest + ("   " if last else "│  "))
            )


def _backs(graph: Graph) -> Iterator[str]:
    """Edges that nobody wrote: gradients in the same step, weights for the next one."""
    for stream in graph.streams:
        if stream.kind == "gradient":
            made = graph.stream(stream.name.removesuffix(".gradient")).producer
            yield f"{stream.producer} ⟲ {made}: gradients in the same step, which train it too"
        elif stream.kind == "weights":
            module = stream.name.removesuffix(".weights")
            agents = {agent.name for agent in graph.agents if agent.module == module}
            readers = [s.name for s in graph.by_op("episodes") if agents & {*s.agents}]
            if readers:
                later = "the next step" if stream.delay == 1 else f"{stream.delay} steps later"
                yield (
                    f"{stream.producer} ⟲ {listed(readers)}: new weights of {module}, for {later}"
                )
