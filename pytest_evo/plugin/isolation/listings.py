"""What Python remembers of folders and files, where the artifact is another one now."""

from __future__ import annotations

import linecache
import sys
from functools import cache
from functools import partial
from itertools import takewhile
from operator import ne
from typing import Any
from typing import NamedTuple

from pytest_evo.plugin.isolation.paths import below
from pytest_evo.plugin.isolation.paths import real


class _Listing(NamedTuple):
    """What a cache of Python's held by the first time that it was looked at."""

    length: int
    last: str | None  # the name that came last
    value: object  # what it stood for
    inside: tuple[str, ...]  # names below the artifact


def _caches() -> tuple[dict[str, Any], dict[str, Any]]:
    """What imports know of folders, and tracebacks of files."""
    return sys.path_importer_cache, linecache.cache


@cache
def look(top: str) -> tuple[_Listing, ...]:
    """Look at the caches once, in the process that forks."""
    return tuple(
        _Listing(
            len(known),
            next(reversed(known), None),
            next(reversed(known.values()), None),
            tuple(name for name in known if below(real(name), top) is not None),
        )
        for known in _caches()
    )


def forget(top: str) -> None:
    """Let imports and tracebacks look anew at what is below ``top``, and only there.

    Forgetting everything would write to hundreds of pages shared with the worker, and
    so would a look at every name: there is none where names have only been added.
    """
    for listing, known in zip(look(top), _caches(), strict=True):
        since = list(takewhile(partial(ne, listing.last), reversed(known)))
        names = [*listing.inside, *since]
        last = known.get(listing.last) if listing.last is not None else None
        same = last is not None and last is listing.value  # else it may have come anew
        if not same or len(known) != listing.length + len(since):  # some are gone
            names = list(known)
        for name in names:
            if below(real(name), top) is not None:
                known.pop(name, None)
