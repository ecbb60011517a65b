"""What each stage does, in a few words for somebody who has not seen the graph's source."""

from collections.abc import Callable, Mapping

from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.index import attribute
from flowgraph.passes.words import counted, listed


def stage_words(stage: Stage, graph: Graph) -> str:
    """One short clause without the stage's own name."""
    return _WORDS[stage.op](stage, graph)


def _function(stage: Stage) -> str:
    return f"{stage.function.qualname}()" if stage.function else "no function"


def _source(stage: Stage, _: Graph) -> str:
    then = {
        "loop": "over and over",
        "drop": "once, without an incomplete last step",
        "short": "once, with a short last step",
    }
    return f"samples from {_function(stage)}, {then[attribute(stage, 'at_end')]}"


def _map(stage: Stage, _: Graph) -> str:
    if attribute(stage, "credit"):
        algorithm = stage.function.module.rpartition(".")[2] if stage.function else "credit"
        return f"{algorithm}: what to learn from each row, from its group's rewards"
    return f"{_function(stage)} on each record"


def _filter(stage: Stage, _: Graph) -> str:
    share = attribute(stage, "expect")
    kept = "" if share == 1.0 else f", about {share:.0%} of them"
    return f"keeps those for which {_function(stage)} is true{kept}"


def _group(stage: Stage, _: Graph) -> str:
    by, size = listed(attribute(stage, "by")), attribute(stage, "size")
    return f"rows of one {by} together" + (f", {size} at a time" if size else "")


def _join(stage: Stage, _: Graph) -> str:
    return f"puts {listed(stage.inputs)} of a sample together again"


def _unnest(stage: Stage, _: Graph) -> str:
    expected = attribute(stage, "expect")
    return f"one record for each of a sample's {attribute(stage, 'dim')}" + (
        f", {expected:g} expected" if expected != 1 else ""
    )


def _apply(stage: Stage, graph: Graph) -> str:
    fixed = graph.module(stage.modules[0]).trainable is False
    return f"module {stage.modules[0]} computes {attribute(stage, 'output')}" + (
        ", and is not trained" if fixed else ""
    )


def _episodes(stage: Stage, _: Graph) -> str:
    tries = attribute(stage, "trajectories")
    return (
        f"{_function(stage)} {counted(tries, 'time')} for each sample, with "
        f"{'agents' if len(stage.agents) > 1 else 'agent'} {listed(stage.agents)}"
    )


def _pack(stage: Stage, _: Graph) -> str:
    return f"several samples in a row of at most {attribute(stage, 'tokens')} tokens"


def _train(stage: Stage, graph: Graph) -> str:
    trained = [name for name in stage.modules if graph.module(name).trainable is not False]
    loss = stage.function.module.rpartition(".")[2] if stage.function else ""
    return f"trains {listed(trained)}" + (f" by {loss.replace('_', ' ')}" if loss else "")


def _evaluate(stage: Stage, _: Graph) -> str:
    every = attribute(stage, "every")
    when = f"every {every} steps" if every else "at the start and the end"
    if not every and not attribute(stage, "at_start"):
        when = "at the end"
    count = counted(attribute(stage, "samples"), "sample")
    said = ", ".join(f"{k}={v}" for k, v in attribute(stage, "overrides").items())
    return f"tries {attribute(stage, 'of')} on {count} {when}" + (f"; {said}" if said else "")


def _sink(stage: Stage, _: Graph) -> str:
    return f"hands records to {_function(stage)}"


_WORDS: Mapping[str, Callable[[Stage, Graph], str]] = {
    "source": _source,
    "map": _map,
    "filter": _filter,
    "group": _group,
    "join": _join,
    "unnest": _unnest,
    "apply": _apply,
    "episodes": _episodes,
    "pack": _pack,
    "train": _train,
    "evaluate": _evaluate,
    "sink": _sink,
}
