"""Modules, agents, and what is expected of them."""

from dataclasses import replace

from flowgraph.ir.graph import Stage
from tests.ir.rules.changes import Cases, added, agent, module, stage
from tests.passes.graphs import filtered, marl, ref, vlm

CASES: Cases = {
    "beginnings_exist": {
        "unknown beginning": lambda: module(marl(), "verifier", starts_as="solvr"),
    },
    "beginnings_are_alike": {
        "beginning of a beginning": lambda: replace(
            marl(),
            modules=(
                *marl().modules,
                replace(marl().modules[0], name="second", starts_as="solver"),
                replace(marl().modules[0], name="third", starts_as="second"),
            ),
        ),
        "another's beginning": lambda: module(
            marl(), "verifier", starts_as="solver", dtype="bfloat16"
        ),
    },
    "agents_have_modules": {
        "agent's module": lambda: agent(marl(), "solver", module="sover"),
    },
    "agents_follow_agents": {
        "agent after nobody": lambda: agent(marl(), "verifier", after=("solve",)),
    },
    "agents_come_in_some_order": {
        "agents in a circle": lambda: agent(marl(), "solver", after=("verifier",)),
    },
    "descriptions_are_numbers": {
        "description": lambda: module(vlm(), "vit", description={"layers": "two"}),
    },
    "expectations_are_numbers": {
        "expected calls": lambda: agent(marl(), "solver", expect={"calls": {"mean": 0}}),
    },
    "rows_have_a_length": {
        "longest row": lambda: agent(marl(), "solver", sampling={"max_length": 0}),
    },
    "shares_are_numbers": {
        "expected share": lambda: stage(filtered(), "keep", attributes={"expect": float("nan")}),
    },
    "graph_has_a_trainer": {
        "no trainer": lambda: added(
            replace(vlm(), stages=vlm().stages[:1], streams=vlm().streams[:1]),
            Stage(name="show", op="sink", inputs=("samples",), function=ref("f")),
        ),
    },
    "there_are_steps": {
        "no steps": lambda: replace(vlm(), steps=0),
    },
}
