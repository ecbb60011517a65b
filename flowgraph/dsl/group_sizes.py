"""Whether groups of a fixed size divide the rows that share their key."""

from collections.abc import Collection

from flowgraph.dsl.draft import Draft
from flowgraph.dsl.location import refuse


def check_size(draft: Draft, stream: str, by: Collection[str], size: int, role: str) -> None:
    """Raises GraphError at the user's line when the graph tells that they do not.

    Where only data can tell, the run checks it.
    """
    known = _rows_of_a_key(draft, stream, by)
    if size <= 1 or known is None:
        return
    rows, made = known
    each = " and ".join(key for key in by)
    if rows is None:
        raise refuse(
            f"{role}: expects rows in groups of {size}, but how many rows share a {each} differs: "
            f"{made}",
            hint="size=0, and let the data decide",
        )
    if rows % size:
        raise refuse(
            f"{role}: expects rows in groups of {size}, got {rows} rows a {each} = "
            f"{rows // size} x {size} + {rows % size} ({made}; `batch` counts source samples, "
            "not rows)",
            hint=f"size={_nearest_divisor(rows, size)}, or size=0 and let the data decide",
        )


def _rows_of_a_key(draft: Draft, stream: str, by: Collection[str]) -> tuple[int | None, str] | None:
    """(rows of each key, what makes them); rows None when they differ; None when nothing tells."""
    stage = draft.producer(stream)
    while stage.op not in ("source", "episodes"):
        if stage.op == "unnest" or stage.op == "filter":
            return None
        stream = stage.inputs[0]
        stage = draft.producer(stream)
    if stage.op == "source":
        return 1, "a source makes one record a sample"
    tries = 1 if "trajectory" in by else int(stage.attributes["trajectories"])
    if "call" in by:
        return tries, f"{tries} trajectories"
    agent = stream.rpartition(".")[2]
    calls = draft.agents[agent].expect.get("calls")
    if calls is None:
        return None
    if not isinstance(calls, int | float) or calls != int(calls):
        mean = calls if isinstance(calls, int | float) else calls["mean"]
        return None, f"'{agent}' is called {mean:g} times a trajectory on average"
    counted = f"{int(calls)} call{'s' * (calls != 1)}"
    words = counted if "trajectory" in by else f"{tries} trajectories x {counted}"
    return tries * int(calls), words


def _nearest_divisor(rows: int, size: int) -> int:
    divisors = (n for n in range(1, rows + 1) if rows % n == 0)
    return min(divisors, key=lambda n: (abs(n - size), n))
