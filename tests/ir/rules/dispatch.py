"""A plan's schedule, tasks and channels."""

from dataclasses import replace

from tests.ir.rules.plan_changes import (
    MARL,
    SHARED,
    VLM,
    PlanCases,
    channel,
    schedule,
    task,
)

CASES: PlanCases = {
    "schedule_is_counted": {
        "schedule's counts": lambda: schedule(VLM, unit=0),
    },
    "chunks_divide_updates": {
        "chunks": lambda: schedule(VLM, chunk=5),
    },
    "mode_is_known": {
        "mode": lambda: schedule(VLM, mode="serial"),
    },
    "tasks_are_named_once": {
        "task twice": lambda: replace(VLM, tasks=(*VLM.tasks, VLM.tasks[0])),
    },
    "kinds_of_tasks_are_known": {
        "kind of task": lambda: task(VLM, "encode", kind="aply"),
    },
    "tasks_are_made_of_stages": {
        "task's stages": lambda: task(VLM, "encode", stages=("encoder",)),
    },
    "tasks_have_groups": {
        "task's group": lambda: task(VLM, "encode", group="host"),
        "unknown group": lambda: task(VLM, "encode", group="vit"),
    },
    "stages_have_tasks": {
        "stage without a task": lambda: task(VLM, "samples", stages=("samples",)),
    },
    "tasks_read_what_tasks_make": {
        "input from nowhere": lambda: task(VLM, "samples", outputs=("images",)),
    },
    "tasks_are_in_order": {
        "order": lambda: replace(VLM, tasks=VLM.tasks[::-1]),
    },
    "channels_are_of_streams": {
        "channel's stream": lambda: replace(
            VLM, channels=(*VLM.channels, replace(VLM.channels[0], stream="sample"))
        ),
    },
    "streams_have_one_channel": {
        "two channels": lambda: replace(VLM, channels=(*VLM.channels, VLM.channels[0])),
    },
    "channels_cover_borders": {
        "no channel": lambda: replace(VLM, channels=VLM.channels[1:]),
    },
    "transports_are_known": {
        "transport": lambda: channel(VLM, "images", transport="shm"),
    },
    "channels_hold_units": {
        "no room": lambda: channel(VLM, "images", capacity_records=0),
    },
    "channels_fit_the_pool": {
        "budget of a device's channel": lambda: channel(SHARED, "solver.weights", capacity_bytes=0),
        "budget over the pool": lambda: replace(VLM, pool_bytes=1000),
    },
    "agents_have_engines": {
        "no engine": lambda: replace(
            MARL, groups=tuple(g for g in MARL.groups if g.name != "solver.engine")
        ),
    },
}
