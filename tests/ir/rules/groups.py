"""A plan's groups, their places, and their turns."""

from dataclasses import replace

from flowgraph.ir.plan import Layout, Place
from tests.ir.rules.plan_changes import MARL, SHARED, VLM, PlanCases, group, made, room
from tests.passes.graphs import gpus, vlm

CASES: PlanCases = {
    "kinds_of_groups_are_known": {
        "kind of group": lambda: group(VLM, "host", kind="stages"),
    },
    "groups_have_modules": {
        "group's module": lambda: group(VLM, "vit.gang", module="vot"),
    },
    "groups_answer_agents": {
        "group's agents": lambda: group(MARL, "solver.engine", agents=("solvr",)),
    },
    "groups_have_processes": {
        "no replicas": lambda: group(VLM, "host", replicas=0, places=()),
    },
    "layouts_are_counted": {
        "no ranks": lambda: group(MARL, "solver.engine", layout=Layout(tp=0)),
        "less than no copies": lambda: group(VLM, "vit.gang", layout=Layout(dp=-1, tp=-1)),
    },
    "gangs_have_ranks": {
        "ranks": lambda: group(VLM, "vit.gang", layout=Layout(dp=2)),
    },
    "engines_are_whole": {
        "whole engines": lambda: group(MARL, "solver.engine", layout=Layout(tp=2)),
    },
    "engines_hold_rows": {
        "engine's slots": lambda: group(MARL, "solver.engine", slots=0),
    },
    "processes_have_places": {
        "places": lambda: group(VLM, "vit.gang", places=()),
    },
    "places_are_on_nodes": {
        "place's node": lambda: group(VLM, "vit.gang", places=(Place(node="locl"),)),
    },
    "devices_are_there": {
        "place's device": lambda: group(VLM, "vit.gang", places=(Place(node="local", device=2),)),
    },
    "devices_are_not_crowded": {
        "a device held twice": lambda: group(SHARED, "verifier.gang", shares=""),
        "crowded device": lambda: group(
            made(vlm(), gpus(1, 2)), "vit.gang", places=(Place(node="n0", device=1),)
        ),
    },
    "residencies_are_known": {
        "residency": lambda: group(MARL, "solver.gang", residency="residant"),
    },
    "turns_are_of_gangs": {
        "turns on others' devices": lambda: group(SHARED, "verifier.gang", shares="solver.engine"),
    },
    "turns_are_on_the_same_places": {
        "turns elsewhere": lambda: group(
            SHARED, "verifier.gang", places=(Place(node="n0", device=2),)
        ),
    },
    "rooms_are_of_groups": {
        "room of nobody": lambda: room(MARL, group="solver.engin"),
    },
    "rooms_are_around_their_groups": {
        "room too small": lambda: room(MARL, most=0),
    },
    "groups_are_named_once": {
        "group twice": lambda: replace(VLM, groups=(*VLM.groups, VLM.groups[0])),
    },
}
