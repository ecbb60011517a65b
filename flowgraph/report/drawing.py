"""A graph as a picture: stages from left to right, streams between them, hidden edges below."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.report.layers import Edge, Layers, arrange

ROW, GAP, MARGIN = 62, 46, 14
BOX_HEIGHT = 42
CHARACTER = 6.9
"""Width of a character of a node's name, in pixels of the picture."""

LANE = 26
"""Height of a lane below the stages, one for each edge that goes back."""

ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M0,0.5L7.5,4L0,7.5z"/></marker></defs>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Left edge, middle height and width of a stage, or of a waypoint (width of its column)."""

    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """An edge against the flow: weights to the next step's rollout, gradients to an encoder."""

    kind: str
    label: str
    producer: str
    consumer: str


def draw_graph(graph: Graph) -> str:
    """The graph as one inline SVG, as wide as its text needs."""
    layers = arrange([stage.name for stage in graph.stages], [*_streams(graph), *_looks(graph)])
    boxes, width, height = _place(graph, layers)
    backs = list(_backs(graph))
    looks = set(_looks(graph))
    parts = [ARROW]
    for edge, route in layers.routes.items():
        kind = "look" if edge in looks else "data"
        parts.append(_edge(kind, edge, [boxes[name] for name in route], graph))
    for lane, back in enumerate(backs):
        parts.append(_back(back, boxes, height + LANE * lane, lane))
    parts += [_node(stage, boxes[stage.name], graph) for stage in graph.stages]
    height += LANE * len(backs) + (MARGIN if backs else 0)
    width += LANE if backs else 0
    return (
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" '
        f'role="img" aria-label="the graph">{"".join(parts)}</svg>'
    )


def _streams(graph: Graph) -> Iterator[Edge]:
    seen: set[Edge] = set()
    for stage in graph.stages:
        for stream in stage.inputs:
            edge = (graph.stream(stream).producer, stage.name)
            if edge not in seen:
                seen.add(edge)
                yield edge


def _looks(graph: Graph) -> Iterator[Edge]:
    """Evaluations look at the stage whose weights they try."""
    for stage in graph.by_op("evaluate"):
        yield str(stage.attributes["of"]), stage.name


def _backs(graph: Graph) -> Iterator[Back]:
    for stream in graph.streams:
        if stream.kind == "weights":
            module = stream.name.removesuffix(".weights")
            for stage in graph.by_op("episodes"):
                if any(graph.agent(name).module == module for name in stage.agents):
                    label = f"{stream.name}, for the next step"
                    yield _back_of(stream, stage.name, label)
        elif stream.kind == "gradient":
            made = graph.stream(stream.name.removesuffix(".gradient"))
            yield _back_of(stream, made.producer, stream.name)


def _back_of(stream: Stream, consumer: str, label: str) -> Back:
    return Back(kind=stream.kind, label=label, producer=stream.producer, consumer=consumer)


def _place(graph: Graph, layers: Layers) -> tuple[dict[str, Box], float, float]:
    """Boxes by name, and the width and height that they take."""
    stages = {stage.name: stage for stage in graph.stages}
    rows = max((len(column) for column in layers.columns), default=0)
    boxes: dict[str, Box] = {}
    x = float(MARGIN)
    for column in layers.columns:
        width = max(_text_width(stages[name]) for name in column if name in stages)
        above = (rows - len(column)) / 2
        for row, name in enumerate(column):
            boxes[name] = Box(x=x, y=MARGIN + ROW * (above + row) + ROW / 2, width=width)
        x += width + GAP
    return boxes, x - GAP + MARGIN, rows * ROW + 2 * MARGIN


def _text_width(stage: Stage) -> float:
    return max(len(stage.name), len(_subtitle(stage)) * 0.9) * CHARACTER + 26


def _subtitle(stage: Stage) -> str:
    uses = ", ".join((*stage.modules, *stage.agents))
    return f"{stage.op} · {uses}" if uses else stage.op


def _colour(stage: Stage, graph: Graph) -> str:
    """Stages of one module have its colour; the user's code has none."""
    if not stage.modules:
        return "own"
    return f"s{[module.name for module in graph.modules].index(stage.modules[0]) % 8}"


def _node(stage: Stage, box: Box, graph: Graph) -> str:
    top = box.y - BOX_HEIGHT / 2
    types = "\n".join(f"{name}: {graph.stream(name).type}" for name in stage.outputs)
    title = f"{stage.name} ({stage.at})" + (f"\n{types}" if types else "")
    kind = "stage looking" if stage.op == "evaluate" else "stage"
    return (
        f'<g class="{kind}"><title>{escape(title)}</title>'
        f'<rect x="{box.x}" y="{top}" width="{box.width:.0f}" height="{BOX_HEIGHT}" rx="7"/>'
        f'<rect class="stripe {_colour(stage, graph)}" x="{box.x}" y="{top}" width="5" '
        f'height="{BOX_HEIGHT}" rx="2.5"/>'
        f'<text class="name" x="{box.x + 14}" y="{box.y - 3}">{escape(stage.name)}</text>'
        f'<text class="op" x="{box.x + 14}" y="{box.y + 13}">{escape(_subtitle(stage))}</text></g>'
    )


def _edge(kind: str, edge: Edge, route: list[Box], graph: Graph) -> str:
    streams = [
        name for name in graph.stage(edge[1]).inputs if graph.stream(name).producer == edge[0]
    ]
    start = route[0]
    path = f"M{start.x + start.width:.1f},{start.y:.1f}"
    for a, b in pairwise(route):
        middle = GAP / 2
        from_x, to_x = a.x + a.width, b.x - (2 if b is route[-1] else 0)
        path += (
            f"C{from_x + middle:.1f},{a.y:.1f} {to_x - middle:.1f},{b.y:.1f} {to_x:.1f},{b.y:.1f}"
        )
        if b is not route[-1]:
            path += f"L{b.x + b.width:.1f},{b.y:.1f}"
    title = f"<title>{escape(', '.join(streams))}</title>" if streams else ""
    return f'<path class="edge {kind}" d="{path}" marker-end="url(#arrow)">{title}</path>'


def _back(back: Back, boxes: Mapping[str, Box], y: float, lane: int) -> str:
    """Out to the right, down to its lane, left, and up into the consumer's left side."""
    producer, consumer = boxes[back.producer], boxes[back.consumer]
    right = producer.x + producer.width
    out, into = right + 12 + 4 * lane, consumer.x - 12 - 4 * lane
    path = (
        f"M{right:.1f},{producer.y + 8:.1f}H{out:.1f}V{y:.1f}H{into:.1f}V{consumer.y + 8:.1f}"
        f"H{consumer.x - 2:.1f}"
    )
    return (
        f'<path class="edge {back.kind}" d="{path}" marker-end="url(#arrow)"/>'
        f'<text class="lane" x="{(out + into) / 2:.0f}" y="{y - 5:.0f}" text-anchor="middle">'
        f"{escape(back.label)}</text>"
    )
