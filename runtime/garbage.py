"""How often Python looks for cycles in the orchestrator's process.

The core makes objects by the million and no cycles among them: counting references frees them all.
By default each 700 of them cause a search, which costs a tenth of the core's time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (50_000, 20, 100)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search for cycles seldom inside the block; afterwards as before."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
