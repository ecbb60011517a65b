"""Declare a training as a dataflow graph; compile it; run it. `import flowgraph as fg`.

Everything here is imported when it is first used, so that `flowgraph.ir`, `flowgraph.passes` and
the command line do not pay for the language, nor the language for what a graph does not name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowgraph import models as models
    from flowgraph import tokenizers as tokenizers
    from flowgraph.algorithms.algorithm import Algorithm as Algorithm
    from flowgraph.algorithms.cross_entropy import token_cross_entropy as token_cross_entropy
    from flowgraph.algorithms.grpo import grpo as grpo
    from flowgraph.algorithms.ppo import ppo as ppo
    from flowgraph.algorithms.rloo import rloo as rloo
    from flowgraph.dsl.fields import ragged as ragged
    from flowgraph.dsl.fields import tensor as tensor
    from flowgraph.dsl.graph import Graph as Graph
    from flowgraph.dsl.load import load_graph as load_graph
    from flowgraph.dsl.models import model as model
    from flowgraph.dsl.optimizers import adam as adam
    from flowgraph.dsl.optimizers import adamw as adamw
    from flowgraph.dsl.optimizers import constant as constant
    from flowgraph.dsl.optimizers import linear_decay as linear_decay
    from flowgraph.dsl.optimizers import sgd as sgd
    from flowgraph.dsl.stream import Stream as Stream
    from flowgraph.dsl.units import Calls as Calls
    from flowgraph.dsl.units import spread as spread
    from flowgraph.dsl.units import tokens as tokens
    from flowgraph.runtime.stages.agents import Agent as Agent
    from flowgraph.runtime.stages.agents import Generation as Generation
    from flowgraph.runtime.stages.rewards import Rewards as Rewards

_HOME = {
    "Agent": "flowgraph.runtime.stages.agents",
    "Algorithm": "flowgraph.algorithms.algorithm",
    "Calls": "flowgraph.dsl.units",
    "Generation": "flowgraph.runtime.stages.agents",
    "Graph": "flowgraph.dsl.graph",
    "Rewards": "flowgraph.runtime.stages.rewards",
    "Stream": "flowgraph.dsl.stream",
    "adam": "flowgraph.dsl.optimizers",
    "adamw": "flowgraph.dsl.optimizers",
    "constant": "flowgraph.dsl.optimizers",
    "grpo": "flowgraph.algorithms.grpo",
    "linear_decay": "flowgraph.dsl.optimizers",
    "load_graph": "flowgraph.dsl.load",
    "model": "flowgraph.dsl.models",
    "models": "",
    "ppo": "flowgraph.algorithms.ppo",
    "ragged": "flowgraph.dsl.fields",
    "rloo": "flowgraph.algorithms.rloo",
    "sgd": "flowgraph.dsl.optimizers",
    "spread": "flowgraph.dsl.units",
    "tensor": "flowgraph.dsl.fields",
    "token_cross_entropy": "flowgraph.algorithms.cross_entropy",
    "tokenizers": "",
    "tokens": "flowgraph.dsl.units",
}
"""Where each public name is defined; "" for a module of that name."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flowgraph' has no attribute '{name}'")
    home = _HOME[name]
    found = getattr(import_module(home), name) if home else import_module(f"flowgraph.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
