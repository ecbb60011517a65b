"""One worker, several processes: a lost one is replaced by the next incarnation under its name.

A token names one process. It is the process's identity on the wire, the owner of its blocks, and
the origin of its calls, so that nothing of a lost process is ever taken for its successor's.
"""

MARK = "#"
"""Workers' names never have it: they are `<group>-<index>`."""


def token_of(worker: str, incarnation: int) -> str:
    """The first process of a worker goes by the worker's own name.

    >>> token_of("host-0", 0), token_of("host-0", 2)
    ('host-0', 'host-0#2')
    """
    return f"{worker}{MARK}{incarnation}" if incarnation else worker


def process_of(token: str) -> tuple[str, int]:
    """Inverse of `token_of`: the worker and its incarnation."""
    worker, _, incarnation = token.partition(MARK)
    return worker, int(incarnation or 0)
