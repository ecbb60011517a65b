"""Filters that let nothing pass: of a source that is read again and again they would read for ever.

Law 3: no wait without an end. All of a source's records once, and nothing passed, is the end.
"""

LEAST = 1000
"""Positions, however few records there are: a filter may draw lots."""


def drought(dropped: int, size: int) -> str | None:
    """What to say when none of the last `dropped` positions passed; None while more are to be read.

    size: records of the source; -1 when not known: then nobody can tell, and reading goes on.
    """
    if size < 0 or dropped < max(size, LEAST):
        return None
    return f"the filters let none of {dropped:,} samples in a row pass; the source has {size:,}"


HINT = "look at the filters on one sample: flowgraph run GRAPH.py --reference --only 0"
