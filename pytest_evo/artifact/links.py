"""Where the links of a version lead."""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Mapping

_MOST_HOPS = 40


def leads_out(path: str, links: Mapping[str, str]) -> bool:
    """Whether a relative link, followed like the kernel would, leaves the tree.

    Links on the way are followed too. A loop or a missing target leads nowhere, so
    not out.
    """
    place = path.split("/")[:-1]
    todo = links[path].split("/")[::-1]
    hops = 0
    while todo and hops < _MOST_HOPS:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not place:
                return True
            place.pop()
            continue
        target = links.get("/".join((*place, part)))
        if target is None:
            place.append(part)
        else:
            hops += 1
            todo += target.split("/")[::-1]
    return False


def link_problem(links: Mapping[str, str]) -> str | None:
    """What is wrong with any of the links (path to target), in one message, or None."""
    absolute = {path for path, target in links.items() if _is_absolute(target)}
    away = {path for path in links if leads_out(path, links)} - absolute
    told = []
    if away:
        told.append(
            f"{_shown(away, links)}: a link that leaves the artifact. Remove it, or "
            "copy the file."
        )
    if absolute:
        told.append(
            f"{_shown(absolute, links)}: a link with an absolute target; a copy of "
            "the artifact would still read the original. Make it relative, or copy "
            "the file."
        )
    return "\n".join(told) or None


def _is_absolute(target: str) -> bool:
    return os.path.isabs(target)  # noqa: PTH117, a target is a text


def _shown(paths: Iterable[str], links: Mapping[str, str]) -> str:
    first, *others = (f"{path!r} -> {links[path]!r}" for path in sorted(paths))
    more = f" and {len(others) - 4} more" if len(others) > 4 else ""
    return ", ".join([first, *others[:4]]) + more
