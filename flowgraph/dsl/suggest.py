"""Naming what the user probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name most like `name`, or None when nothing comes close."""
    close = get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return close[0] if close else None


def choices(name: str, valid: Iterable[str], *, what: str) -> str:
    """A hint: the nearest valid name, and all of them.

    >>> choices("imags", ["images", "tokens"], what="field")
    "'images'; the fields are images, tokens"
    """
    known = list(valid)
    if not known:
        return f"there is no {what} to choose from"
    if len(known) == 1:
        return f"'{known[0]}', the only {what}"
    close = nearest(name, known)
    listing = f"the {what}s are {', '.join(known)}"
    return f"'{close}'; {listing}" if close else listing
