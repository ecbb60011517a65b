"""Moving records: `python -m benchmarks.transport [--rounds 15] [--peers PYTHON]`.

--peers: the Python of an environment with transferqueue 0.1.11 and Ray (see docs/transport.md);
without it the comparisons with them are left out.
"""

import json
import os
import subprocess
from statistics import median
from typing import Any

import click

from benchmarks.transport import host, memory, overlap, request, wire
from benchmarks.transport.rig import ROOT, load, ratio


@click.command()
@click.option("--rounds", default=15)
@click.option("--peers", default="", help="Python with transferqueue and ray")
def main(rounds: int, peers: str) -> None:
    """Print all figures as a table of ratios."""
    print(f"# {load()}; best or median of {rounds} rounds in turns")
    print("| what | ours | beside | ratio | asked |\n|---|---|---|---|---|")
    found = host.measure(rounds)
    peer: dict[str, Any] = _peers(peers) if peers else {}
    ms = {name: seconds * 1e3 for name, seconds in found.seconds.items()}
    line("put + get views, columnar", ms["columns"], ms["copies"], found.views_by_copies, "<= 1")
    print(f"| its first put | {found.first_put * 1e3:.2f} ms | | | |")
    if peer:
        theirs = {name: min(peer[name][2:]) * 1e3 for name in ("ragged", "dense")}
        first = peer["ragged"][0] * 1e3
        line("put + get, rows of tensors", ms["rows"], theirs["ragged"], 0, ">= 30")
        line("the same, columnar", ms["columns"], theirs["ragged"], 0, "")
        line("their first put + get", found.first_put * 1e3, first, 0, "")
        line("put + get, dense 18 MiB", ms["dense"], theirs["dense"], 0, ">= 20")
        line("get alone by Ray's", found.get_alone * 1e3, peer["ray_get"] * 1e3, 0, ">= 1")
    wires()
    overlaps(rounds)
    quick = request.measure(20, 200)
    for at, name, asked in ((0, "p50", "<= 1.5"), (1, "p99", "<= 3")):
        ours, plain = quick["ours"][at] * 1e3, quick["pyzmq"][at] * 1e3
        line(f"small request and reply, {name}", ours, plain, ours / plain, asked)
    memories()
    print(f"# {load()}")


def memories() -> None:
    """Law 4 by the kernel's figures, and what rounding sizes up would cost."""
    found = memory.measure()
    bound = memory.BUDGET + memory.ITEM
    print(
        f"| memory, producer 10x faster, {found.waits} waits, {found.lost} lost "
        f"| {found.peak / memory.MIB:.0f} MiB | {bound / memory.MIB:.0f} MiB "
        f"| {found.peak / bound:.2f} | <= 1 (budget + one item) |"
    )
    for order in ("oldest first", "nearly", "random"):
        exact, classes = (memory.filled(classes, order) for classes in (False, True))
        print(
            f"| segment in use when one finds no room, freed {order}; size classes beside "
            f"| {exact:.2f} | {classes:.2f} | {exact / classes:.2f} | |"
        )


def wires() -> None:
    taken = wire.measure(9)
    best = {name: f"{wire.NBYTES / median(t) / 1e9:.2f} GB/s" for name, t in taken.items()}
    for ours, theirs, asked in (
        ("ours, trusted", "one frame", ">= 2"),
        ("ours, trusted", "2 MiB frames", ">= 0.9"),
        ("ours, CURVE", "2 MiB frames, CURVE", ">= 0.8"),
    ):
        found = ratio(taken, ours, theirs)
        print(
            f"| 72 MiB, {ours} by pyzmq, {theirs} | {best[ours]} | {best[theirs]} "
            f"| {found:.2f} | {asked} |"
        )


def overlaps(rounds: int) -> None:
    """Another node's items, worked on while the next is fetched, beside one after the other."""
    for name, trusted in (("trusted", True), ("CURVE", False)):
        taken = overlap.measure(rounds, trusted)
        ms = {what: median(times) * 1e3 for what, times in taken.items()}
        what = f"{overlap.ITEMS} items of 8 MiB of another node, {name}, fetched while worked on"
        line(what, ms["overlapped"], ms["apart"], ratio(taken, "overlapped", "apart"), "")
        least = max(ms["fetching"], ms["working"])
        line("the same, by the slower of its parts alone", ms["overlapped"], least, 0, "")


def line(what: str, ours: float, beside: float, found: float, asked: str) -> None:
    """A row; a ratio of 0 means: how many times faster."""
    shown = found or beside / ours
    print(f"| {what} | {ours:.3f} ms | {beside:.3f} ms | {shown:.2f} | {asked} |", flush=True)


def _peers(python: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-m", "benchmarks.transport.peer_transferqueue"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=300,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
