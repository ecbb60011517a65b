"""One case a rule of the flow dialect: the graph with one thing wrong, and what is said of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.ops import OPS
from flowgraph.ir.types import AGENT_ROW, Field, Ragged, RecordType
from flowgraph.ir.verify import flow_faults, verify_flow
from flowgraph.ir.verify.flow import RULES
from tests.passes.graphs import IMAGE, QUESTION, TASK, filtered, marl, ref, vlm

Change = Callable[[], Graph]


def stage(graph: Graph, name: str, **changes: Any) -> Graph:
    """The graph with fields of one stage replaced; `attributes` are added to its own."""
    old = graph.stage(name)
    if "attributes" in changes:
        changes["attributes"] = {**old.attributes, **changes["attributes"]}
    new = replace(old, **changes)
    return replace(graph, stages=tuple(new if s is old else s for s in graph.stages))


def without(graph: Graph, name: str, attribute: str) -> Graph:
    old = graph.stage(name)
    kept = {key: value for key, value in old.attributes.items() if key != attribute}
    new = replace(old, attributes=kept)
    return replace(graph, stages=tuple(new if s is old else s for s in graph.stages))


def stream(graph: Graph, name: str, **changes: Any) -> Graph:
    old = graph.stream(name)
    new = replace(old, **changes)
    return replace(graph, streams=tuple(new if s is old else s for s in graph.streams))


def typed(graph: Graph, name: str, *fields: Field, key: tuple[str, ...] | None = None) -> Graph:
    """The graph with fields of a stream's type replaced or added."""
    old = graph.stream(name).type
    new = {field.name: field for field in (*old.fields, *fields)}
    return stream(graph, name, type=RecordType(fields=tuple(new.values()), key=key or old.key))


def lacking(graph: Graph, name: str, field: str) -> Graph:
    old = graph.stream(name).type
    kept = tuple(f for f in old.fields if f.name != field)
    return stream(graph, name, type=replace(old, fields=kept))


def agent(graph: Graph, name: str, **changes: Any) -> Graph:
    old = graph.agent(name)
    new = replace(old, **changes)
    return replace(graph, agents=tuple(new if a is old else a for a in graph.agents))


def module(graph: Graph, name: str, **changes: Any) -> Graph:
    old = graph.module(name)
    new = replace(old, **changes)
    return replace(graph, modules=tuple(new if m is old else m for m in graph.modules))


def added(graph: Graph, new: Stage, *streams: Stream) -> Graph:
    return replace(graph, stages=(*graph.stages, new), streams=(*graph.streams, *streams))


def doubled() -> Graph:
    graph = marl()
    return replace(
        graph, stages=(*graph.stages, replace(graph.stage("games"), at=graph.stages[0].at))
    )


def cycle() -> Graph:
    graph = vlm()
    loop = [
        Stage(name="a", op="map", inputs=("b",), outputs=("a",), function=ref("f")),
        Stage(name="b", op="map", inputs=("a",), outputs=("b",), function=ref("f")),
    ]
    streams = [Stream(name=s.name, producer=s.name, type=QUESTION) for s in loop]
    return replace(graph, stages=(*graph.stages, *loop), streams=(*graph.streams, *streams))


def unread() -> Graph:
    copy = Stage(name="copy", op="map", inputs=("samples",), outputs=("copy",), function=ref("f"))
    return added(vlm(), copy, Stream(name="copy", producer="copy", type=QUESTION))


def second_trainer() -> Graph:
    old = vlm().stage("train-lm")
    return added(vlm(), replace(old, name="again", modules=("lm",)))


def through_a_map() -> Graph:
    """The features of a trained encoder pass through the user's function."""
    between = Stage(
        name="scale", op="map", inputs=("features",), outputs=("scaled",), function=ref("f")
    )
    graph = stage(vlm(), "join", inputs=("samples", "scaled"))
    made = Stream(name="scaled", producer="scale", type=graph.stream("features").type)
    stages = (*graph.stages[:3], between, *graph.stages[3:])
    return replace(graph, stages=stages, streams=(*graph.streams, made))


def shown_beside() -> Graph:
    """What trains on features is read by a sink too."""
    show = Stage(name="show", op="sink", inputs=("joined",), function=ref("f"))
    return added(vlm(), show)


def joined_twice() -> Graph:
    """Two streams of items are joined, one behind the other."""
    graph = vlm()
    encode, join = graph.stage("encode"), graph.stage("join")
    output = Field(name="others", dtype="float32", dims=(Ragged("patches"), 64))
    features, joined = graph.stream("features").type, graph.stream("joined").type
    key = tuple(field for field in features.fields if field.name in features.key)
    nested = replace(output, dims=(Ragged("images"), *output.dims))
    both = replace(joined, fields=(*joined.fields, nested))
    graph = stage(graph, "pack", inputs=("both",))
    graph = stream(graph, "packs", type=both)
    again = replace(
        encode,
        name="again",
        outputs=("others",),
        attributes={**encode.attributes, "output": "others"},
    )
    graph = added(
        graph,
        again,
        Stream(name="others", producer="again", type=replace(features, fields=(*key, output))),
    )
    second = replace(join, name="second", inputs=("joined", "others"), outputs=("both",))
    return added(graph, second, Stream(name="both", producer="second", type=both))


def late_filter() -> Graph:
    """Samples are filtered by what a model says of them."""
    graph = vlm()
    apply = replace(graph.stage("encode"), name="score", inputs=("samples",), outputs=("scored",))
    scored = RecordType(fields=(*QUESTION.fields, Field(name="features", dtype="float32")))
    keep = Stage(name="keep", op="filter", inputs=("scored",), outputs=("kept",), function=ref("f"))
    show = Stage(name="show", op="sink", inputs=("kept",), function=ref("f"))
    graph = added(graph, apply, Stream(name="scored", producer="score", type=scored))
    graph = added(graph, keep, Stream(name="kept", producer="keep", type=scored))
    return added(graph, show)


INT = Field(name="x", dtype="int64")
CASES: dict[str, tuple[Change, str]] = {
    # names
    "illegal name": (
        lambda: replace(marl(), modules=(replace(marl().modules[0], name="a b"), *marl().modules)),
        "module 'a b': expects a name of letters, digits, '.', '-' and '_', a letter first, got",
    ),
    "stage named twice": (doubled, "stage 'games': is declared twice, first at example.py:5"),
    "stream made twice": (
        lambda: stage(vlm(), "encode", outputs=("images",)),
        "stage 'encode': expects stream 'images' to be made once, got 'images' making it too",
    ),
    "output listed twice": (
        lambda: stage(marl(), "games", outputs=("games.solver", "games.solver")),
        "stage 'games': expects output 'games.solver' once, got it twice",
    ),
    "undeclared output": (
        lambda: stage(marl(), "games", outputs=("games.solver", "games.verifier", "more")),
        "stage 'games': expects stream 'more' to be declared, got no such stream",
    ),
    "kind of stream": (
        lambda: stream(vlm(), "images", kind="dat"),
        "stream 'images': expects a kind of data, gradient, weights, got 'dat'",
    ),
    "unknown producer": (
        lambda: stream(stage(vlm(), "images", outputs=("features",)), "images", producer="imges"),
        "stream 'images': expects a producer, got 'imges', which is no stage",
    ),
    "wrong producer": (
        lambda: stream(vlm(), "images", producer="samples"),
        "stream 'images': expects to be an output of its producer 'samples', got no such output",
    ),
    "unknown input": (
        lambda: stage(vlm(), "encode", inputs=("image",)),
        "stage 'encode': expects declared data streams to read, got 'image'\n"
        "  try: 'images' (there is also 'samples', 'features', 'joined', 'packs')",
    ),
    "cycle": (cycle, "stage 'a': is on a cycle, which can never start: a -> b -> a"),
    "unconsumed stream": (unread, "stream 'copy': nothing reads it (made by stage 'copy')"),
    "agent's module": (
        lambda: agent(marl(), "solver", module="sover"),
        "agent 'solver': expects a declared module, got 'sover'\n"
        "  try: 'solver' (there is also 'verifier')",
    ),
    "agent after nobody": (
        lambda: agent(marl(), "verifier", after=("solve",)),
        "agent 'verifier': expects to come after declared agents, got 'solve'",
    ),
    "agents in a circle": (
        lambda: agent(marl(), "solver", after=("verifier",)),
        "agent 'solver': `after` goes in a circle among 'solver', 'verifier'",
    ),
    "description": (
        lambda: module(vlm(), "vit", description={"layers": "two"}),
        "module 'vit': expects layers >= 1 or null, got 'two'",
    ),
    "expected calls": (
        lambda: agent(marl(), "solver", expect={"calls": {"mean": 0}}),
        "agent 'solver': expects calls to be a number above 0, got {'mean': 0}",
    ),
    "longest row": (
        lambda: agent(marl(), "solver", sampling={"max_length": 0}),
        "agent 'solver': expects max_length >= 1, got 0",
    ),
    "expected share": (
        lambda: stage(filtered(), "keep", attributes={"expect": float("nan")}),
        "stage 'keep': expects expect to be a number above 0, got nan",
    ),
    "no trainer": (
        lambda: added(
            replace(vlm(), stages=vlm().stages[:1], streams=vlm().streams[:1]),
            Stage(name="show", op="sink", inputs=("samples",), function=ref("f")),
        ),
        "graph 'vlm': expects a train stage, got none",
    ),
    "no steps": (lambda: replace(vlm(), steps=0), "graph 'vlm': expects steps >= 1, got 0"),
    # schema
    "operation": (
        lambda: stage(vlm(), "images", op="unest"),
        "stage 'images': expects an operation, got 'unest'\n  try: 'unnest'",
    ),
    "inputs": (
        lambda: stage(vlm(), "join", inputs=("samples",)),
        "stage 'join': expects at least 2 inputs of a join, got 1",
    ),
    "outputs": (
        lambda: stage(vlm(), "train-lm", outputs=("packs",)),
        "stage 'train-lm': expects 0 outputs of a train, got 1",
    ),
    "function": (
        lambda: stage(vlm(), "samples", function=None),
        "stage 'samples': expects a function, which a source needs, got none",
    ),
    "devices": (
        lambda: stage(vlm(), "train-lm", devices=-1),
        "stage 'train-lm': expects devices >= 0, got -1",
    ),
    "unknown attribute": (
        lambda: stage(vlm(), "pack", attributes={"token": 1}),
        "stage 'pack': expects attributes of a pack, got 'token'\n"
        "  try: 'tokens' (there is also 'over_long', 'cost')",
    ),
    "attribute's kind": (
        lambda: stage(vlm(), "pack", attributes={"tokens": "many"}),
        "stage 'pack': expects tokens of kind int, got 'many'",
    ),
    "bool is no int": (
        lambda: stage(vlm(), "pack", attributes={"tokens": True}),
        "stage 'pack': expects tokens of kind int, got True",
    ),
    "attribute's choice": (
        lambda: stage(vlm(), "pack", attributes={"over_long": "cut"}),
        "stage 'pack': expects over_long of kind error or drop or truncate or split, got 'cut'",
    ),
    "attribute's data": (
        lambda: stage(vlm(), "train-lm", attributes={"schedule": {"f": print}}),
        "stage 'train-lm': expects schedule of kind map, got",
    ),
    "missing attribute": (
        lambda: without(vlm(), "pack", "tokens"),
        "stage 'pack': expects attribute 'tokens' (length of a packed row, in tokens), got none",
    ),
    "unknown module": (
        lambda: stage(vlm(), "encode", modules=("vot",)),
        "stage 'encode': expects declared modules, got 'vot'\n  try: 'vit' (there is also 'lm')",
    ),
    "unknown agent": (
        lambda: stage(marl(), "games", agents=("solver", "verifer")),
        "stage 'games': expects declared agents, got 'verifer'",
    ),
    # types
    "field twice": (
        lambda: stream(vlm(), "samples", type=RecordType(fields=(*QUESTION.fields, INT, INT))),
        "stream 'samples': expects field 'x' once, got it twice",
    ),
    "dtype": (
        lambda: typed(vlm(), "samples", Field(name="x", dtype="int65")),  # type: ignore[arg-type]
        "stream 'samples': expects a dtype of field 'x', got 'int65'\n  try: 'int64'",
    ),
    "ragged behind fixed": (
        lambda: typed(vlm(), "samples", replace(INT, dims=(3, Ragged("n")))),
        "stream 'samples': expects ragged dims of 'x' before all others, got 'x: int64[3, n*]'",
    ),
    "size": (
        lambda: typed(vlm(), "samples", replace(INT, dims=(0,))),
        "stream 'samples': expects sizes of at least 1 in field 'x', got 'x: int64[0]'",
    ),
    "key": (
        lambda: typed(vlm(), "samples", key=("sample", "item")),
        "stream 'samples': expects key 'item' to be an int64 field, got no such field",
    ),
    # operations on records
    "credit without reward": (
        lambda: lacking(lacking(marl(), "solver.groups", "reward"), "games.solver", "reward"),
        "stage 'train-solver.credit': expects field 'reward' among the fields of 'solver.groups'",
    ),
    "credit over a whole step": (
        lambda: stage(marl(), "train-solver.credit", attributes={"group": ()}),
        "stage 'train-solver.credit': expects 'sample' as the first key of credit's groups, got ()",
    ),
    "credit's size": (
        lambda: stage(marl(), "train-solver.credit", attributes={"size": -1}),
        "stage 'train-solver.credit': expects size >= 0, got -1",
    ),
    "credit's group": (
        lambda: stage(marl(), "train-solver.credit", attributes={"group": ("samples",)}),
        "expects group key 'samples' among the fields of 'solver.groups', got no such field",
    ),
    "advantage": (
        lambda: lacking(marl(), "train-solver.credit", "advantage"),
        "stage 'train-solver.credit': expects its output to have 'advantage: float32', got no",
    ),
    "map's key": (
        lambda: typed(marl(), "train-solver.credit", key=("sample",)),
        "expects its output to keep the key (sample, trajectory, call), got (sample)",
    ),
    "group by a value": (
        lambda: stage(marl(), "solver.groups", attributes={"by": ("sample", "reward")}),
        "stage 'solver.groups': expects keys of its records to group by, got 'reward'",
    ),
    "group's first key": (
        lambda: stage(marl(), "solver.groups", attributes={"by": ("trajectory",)}),
        "stage 'solver.groups': expects 'sample' as the first key, got (trajectory)",
    ),
    "group's size": (
        lambda: marl(size=-1),
        "stage 'solver.groups': expects size >= 0, got -1",
    ),
    "group's type": (
        lambda: typed(marl(), "solver.groups", INT),
        "stage 'solver.groups': expects its output 'solver.groups' to have its input's type",
    ),
    "filter's type": (
        lambda: typed(filtered(), "kept", INT),
        "stage 'keep': expects its output 'kept' to have its input's type",
    ),
    "filter behind a model": (
        late_filter,
        "stage 'keep': expects to filter samples before a model runs on them, since filters decide "
        "which samples belong to a step, got 'score' before it",
    ),
    "unnest's dim": (
        lambda: stage(vlm(), "images", attributes={"dim": "patches"}),
        "stage 'images': expects 'patches' to be the outermost ragged dim of a field of 'samples'",
    ),
    "unnest of items": (
        lambda: stream(
            vlm(), "samples", type=replace(IMAGE, fields=(*IMAGE.fields, *TASK.fields[1:]))
        ),
        "stage 'images': expects samples, keyed by 'sample', got records by (sample, item)",
    ),
    "unnest's key": (
        lambda: typed(vlm(), "images", key=("sample",)),
        "stage 'images': expects its output to be keyed by 'sample', 'item', got (sample)",
    ),
    "join's keys": (
        lambda: typed(vlm(), "features", key=("item",)),
        "stage 'join': expects stream 'features' to be keyed by (sample) or (sample, item), as "
        "'samples' is, got (item)",
    ),
    "join's fields": (
        lambda: typed(vlm(), "features", replace(INT, name="tokens")),
        "stage 'join': expects a field in one of its inputs only, got 'tokens' in 'samples' and "
        "'features'",
    ),
    "join's output": (
        lambda: lacking(vlm(), "joined", "features"),
        "stage 'join': expects its output to have 'features: float32[merged*, 64]' of 'features'",
    ),
    "apply's module": (
        lambda: stage(vlm(), "encode", modules=("vit", "lm")),
        "stage 'encode': expects one module, got 2",
    ),
    "apply's inputs": (
        lambda: stage(vlm(), "encode", attributes={"inputs": ("patchs",)}),
        "stage 'encode': expects module input 'patchs' among the fields of 'images', got no such "
        "field\n  try: 'patches'",
    ),
    "apply's output": (
        lambda: stage(vlm(), "encode", attributes={"output": "feature"}),
        "stage 'encode': expects its output stream to have a float field 'feature', got no such",
    ),
    "nobody plays": (
        lambda: stage(marl(), "games", agents=()),
        "stage 'games': expects agents to play, got none",
    ),
    "trajectories": (
        lambda: marl(tries=0),
        "stage 'games': expects trajectories >= 1, got 0",
    ),
    "timeout": (
        lambda: stage(marl(), "games", attributes={"timeout_s": 0.0}),
        "stage 'games': expects timeout_s > 0, got 0.0",
    ),
    "rows": (
        lambda: typed(marl(), "games.solver", INT),
        "stage 'games': expects output 'games.solver' to have rows (sample: int64",
    ),
    "play with rows": (
        lambda: stream(marl(), "tasks", type=AGENT_ROW),
        "stage 'games': expects samples, keyed by 'sample', got records by (sample, trajectory",
    ),
    # training
    "batch": (lambda: vlm(batch=0), "stage 'train-lm': expects batch >= 1, got 0"),
    "clip": (
        lambda: stage(vlm(), "train-lm", attributes={"clip": -1.0}),
        "stage 'train-lm': expects clip >= 0, got -1.0",
    ),
    "updates": (
        lambda: stage(vlm(), "train-lm", attributes={"updates": 5}),
        "stage 'train-lm': expects a batch that its 5 updates divide, got 64 = 12 x 5 + 4\n"
        "  try: batch=60",
    ),
    "optimizer": (
        lambda: stage(vlm(), "train-lm", attributes={"optimizer": {"name": "adamww", "lr": 1.0}}),
        "stage 'train-lm': expects an optimizer of adamw, adam, sgd, got 'adamww'\n  try: 'adamw'",
    ),
    "learning rate": (
        lambda: stage(vlm(), "train-lm", attributes={"optimizer": {"name": "adam"}}),
        "stage 'train-lm': expects a learning rate lr > 0, got None",
    ),
    "nothing to train": (
        lambda: stage(vlm(), "train-lm", modules=()),
        "stage 'train-lm': expects a module to train, got none",
    ),
    "frozen": (
        lambda: module(marl(), "solver", trainable=False),
        "stage 'train-solver': expects a trainable module, got 'solver', none of which is",
    ),
    "module listed twice": (
        lambda: stage(vlm(), "train-lm", modules=("lm", "lm")),
        "stage 'train-lm': expects each module once, got lm, lm",
    ),
    "no tokens": (
        lambda: lacking(lacking(vlm(), "packs", "tokens"), "joined", "tokens"),
        "stage 'pack': expects field 'tokens' among the fields of 'joined', got no such field",
    ),
    "tokens' type": (
        lambda: typed(
            typed(vlm(), "packs", replace(INT, name="tokens")),
            "joined",
            replace(INT, name="tokens"),
        ),
        "stage 'pack': expects 'tokens: int64[tokens*]', got 'tokens: int64'",
    ),
    "no mask": (
        lambda: lacking(marl(), "train-solver.credit", "loss_mask"),
        "stage 'train-solver': expects field 'loss_mask' among the fields of",
    ),
    "mask's length": (
        lambda: typed(marl(), "train-solver.credit", Field(name="loss_mask", dtype="float32")),
        "stage 'train-solver': expects 'loss_mask' as long as 'tokens: int64[tokens*]', got "
        "'loss_mask: float32'",
    ),
    "loss's needs": (
        lambda: stage(marl(), "train-solver", attributes={"needs": ("advantages",)}),
        "stage 'train-solver': expects field 'advantages' among the fields of "
        "'train-solver.credit', got no such field\n  try: 'advantage'",
    ),
    "what trainers make": (
        lambda: lacking(marl(), "train-solver.credit", "logprobs"),
        "stage 'train-solver': expects field 'logprobs' among the fields of",
    ),
    "no reference": (
        lambda: stage(marl(), "train-solver", attributes={"needs": ("reference_logprobs",)}),
        "stage 'train-solver': expects a reference module, for 'reference_logprobs', got none",
    ),
    "unknown reference": (
        lambda: stage(marl(), "train-solver", attributes={"reference": "ref"}),
        "stage 'train-solver': expects a declared module as reference, got 'ref'",
    ),
    "trained reference": (
        lambda: stage(marl(), "train-solver", attributes={"reference": "verifier"}),
        "stage 'train-solver': expects reference 'verifier' to stay as it is, got a trainable",
    ),
    "unknown beginning": (
        lambda: module(marl(), "verifier", starts_as="solvr"),
        "module 'verifier': expects to start as a declared module, got 'solvr'\n  try: 'solver'",
    ),
    "another's beginning": (
        lambda: module(marl(), "verifier", starts_as="solver", dtype="bfloat16"),
        "module 'verifier': expects the factory, parameters and dtype of 'solver', as which it "
        "starts, got others",
    ),
    "temperature 0": (
        lambda: agent(marl(), "solver", sampling={"temperature": 0.0}),
        "stage 'train-solver': expects agent 'solver' to sample at a temperature above 0",
    ),
    "items without a place": (
        lambda: stage(vlm(), "join", attributes={"placeholder": -1}),
        "stage 'join': expects a placeholder, the token that the items of 'features' take the "
        "place of in 'train-lm', got none",
    ),
    "features outside trainers": (
        shown_beside,
        "stage 'join': expects to be read by train stages only, since it names a placeholder, got "
        "'show', a sink",
    ),
    "two streams of items": (
        joined_twice,
        "stage 'train-lm': expects items of one stream, to take the place of tokens, got 'others', "
        "'features'",
    ),
    "encoder not applied": (
        lambda: stage(marl(), "train-solver", modules=("solver", "verifier")),
        "stage 'train-solver': expects module 'verifier' applied to what it trains on, got no such",
    ),
    "gradient's way": (
        through_a_map,
        "stage 'train-lm': expects only joins and packs between 'encode' and itself, for the "
        "gradient of 'vit' to return, got other stages",
    ),
    "who reads packs": (
        lambda: added(vlm(), Stage(name="show", op="sink", inputs=("packs",), function=ref("f"))),
        "stage 'pack': expects to be read by train stages only, got 'show', a sink",
    ),
    "pack's type": (
        lambda: lacking(vlm(), "packs", "rows"),
        "stage 'pack': expects its output 'packs' to have its input's type",
    ),
    "pack's length": (
        lambda: stage(vlm(), "pack", attributes={"tokens": 0}),
        "stage 'pack': expects tokens >= 1, got 0",
    ),
    "evaluated stage": (
        lambda: stage(vlm(), "held-out", attributes={"of": "train"}),
        "stage 'held-out': expects a train or episodes stage as `of`, got 'train'\n"
        "  try: 'train-lm' (there is no other)",
    ),
    "metric": (
        lambda: stage(vlm(), "held-out", function=None),
        "stage 'held-out': expects a metric, since it evaluates a train stage, got none",
    ),
    "evaluated samples": (
        lambda: stage(vlm(), "held-out", attributes={"samples": 0}),
        "stage 'held-out': expects samples >= 1, got 0",
    ),
    "steps disagree": (
        lambda: stage(marl(), "train-verifier", attributes={"batch": 8}),
        "stage 'train-verifier': expects batch=16, as 'train-solver' has: a step has one, got "
        "batch=8",
    ),
    "trained twice": (
        second_trainer,
        "stage 'again': trains module 'lm', which 'train-lm' (example.py:7) trains already",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_rule_says_what_is_expected_and_what_is_there(name: str) -> None:
    change, message = CASES[name]
    said = [str(fault) for fault in flow_faults(change())]
    assert any(message in text for text in said), said


def test_the_first_fault_is_raised_at_the_users_line() -> None:
    with pytest.raises(GraphError) as caught:
        verify_flow(stage(vlm(), "pack", attributes={"token": 1}))
    assert str(caught.value).splitlines()[0] == "example.py:6:"
    assert caught.value.node == 'stage "pack"'
    assert caught.value.term == "token"


@pytest.mark.parametrize("graph", [marl(), vlm(), filtered()], ids=["marl", "vlm", "filtered"])
def test_legal_graphs_have_no_faults(graph: Graph) -> None:
    assert list(flow_faults(graph)) == []


def test_every_operation_has_an_entry_in_the_table_of_rules() -> None:
    assert set(RULES) == set(OPS)
