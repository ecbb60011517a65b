"""What `flowgraph status` says of pools: who has how much, who keeps what, who waits for room."""

from typing import Any

from flowgraph.cli.standing import told

WORKER: dict[str, Any] = {
    "name": "host-0",
    "state": "working",
    "holds": [],
    "waits_for": "",
    "from": [],
    "since": 0.0,
    "heard": None,
    "no_beat_since": None,
    "keeps": [],
    "pool": None,
}


def said(*workers: dict[str, Any], **more: Any) -> list[str]:
    standing = {
        "run_dir": "/run",
        "state": "running",
        "pid": 7,
        "error": "",
        "told": 0.0,
        "restarts": 0,
        "quarantined": [],
        "checkpoint": 0,
        "resume": None,
        "workers": [WORKER | worker for worker in workers],
        "streams": [],
        **more,
    }
    return told(standing, 0.0).splitlines()


def test_what_is_in_a_workers_pool_is_told_with_its_budget() -> None:
    pool = {"blocks": 12, "bytes": 3 << 20, "budget": 64 << 20}
    lines = said({"pool": pool}, {"name": "lm.gang-0", "pool": {**pool, "blocks": 0, "bytes": 0}})
    assert lines[1:] == [
        "  host-0     working; pool 3 of 64 MiB in 12 blocks",
        "  lm.gang-0  working",
    ]


def test_who_waits_for_room_and_who_keeps_records_is_told() -> None:
    waits = {
        "state": "waiting",
        "waits_for": "room for 640 bytes of lines in its pool",
        "from": ["host-1"],
        "pool": {"blocks": 1, "bytes": 96 << 10, "budget": 96 << 10},
    }
    keeps = [{"task": "check", "stream": "lines", "blocks": 1, "bytes": 96 << 10}]
    lines = said(waits, {"name": "host-1", "keeps": keeps})
    assert lines[1:] == [
        "  host-0  waiting for room for 640 bytes of lines in its pool from host-1; "
        "pool 0.0938 of 0.0938 MiB in 1 block",
        "  host-1  working; check keeps 1 block, 0.0938 MiB, of stream lines after its work was "
        "done",
    ]


def test_budgets_in_memory_and_on_disk_are_told() -> None:
    assert said(pool_bytes=256 << 20, spill_bytes=0)[-1] == (
        "each worker may keep 256 MiB in memory of its records"
    )
    assert said(pool_bytes=256 << 20, spill_bytes=20 * 10**9)[-1] == (
        "each worker may keep 256 MiB in memory and 20 GB on disk of its records"
    )


def test_a_run_that_was_told_of_by_an_older_version_is_told_all_the_same() -> None:
    older = {name: value for name, value in WORKER.items() if name not in ("keeps", "pool")}
    lines = told(
        {
            "run_dir": "/run",
            "state": "dead",
            "pid": None,
            "error": "",
            "told": 0.0,
            "restarts": 0,
            "quarantined": [],
            "checkpoint": 2,
            "resume": "flowgraph resume /run",
            "workers": [older],
        },
        0.0,
    ).splitlines()
    assert lines[1:] == ["  host-0  working", "go on from step 2: flowgraph resume /run"]
