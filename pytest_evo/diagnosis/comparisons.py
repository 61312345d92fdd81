"""What pytest prints of a failed comparison, without its right-hand side.

An expected answer that comes from a file or a fixture is known to nobody before the
test compares it. By custom it stands on the right, so that side is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_EXPLAINS = re.compile(r"^E(?= )")
_RULES = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(.*?\bassert .+? == ).+",  # the comparison itself
        r"^(\s*At index .+? diff: .+ != ).+",
        r"^(\s*\{.*\} != )\{.*",  # differing items of a mapping
        r"^(\s*Right contains .+: ).+",
        r"^(\s*- ).*\S.*",  # a line of a diff that only the right side has
        r"^(\s*\+\s+and\s+).+(?= = )",  # where the right side comes from
    )
)
_EXTRA_ITEMS = re.compile(r"^\s*Right contains .*:$")
_EXTRA_SET = re.compile(r"^\s*Extra items in the right set:$")


def without_right_side(message: str, mark: str) -> str:
    """An assertion's explanation with ``mark`` in the place of what was expected."""
    return "\n".join(_cut(message.split("\n"), mark))


def report_without_right_sides(report: str, mark: str) -> str:
    """The same for a whole report, in which explanations begin with ``E``."""
    rows = report.split("\n")
    explained = [_EXPLAINS.sub("", row) for row in rows if _EXPLAINS.match(row)]
    cut = _cut(explained, mark)
    return "\n".join(f"E{next(cut)}" if _EXPLAINS.match(row) else row for row in rows)


def _cut(rows: list[str], mark: str) -> Iterator[str]:
    listing = False
    for row in rows:
        if listing and row.strip() and not row.strip().endswith(":"):
            yield f"{row[: len(row) - len(row.lstrip())]}{mark}"
            continue
        listing = bool(_EXTRA_ITEMS.match(row) or _EXTRA_SET.match(row))
        yield _without(row, mark)


def _without(row: str, mark: str) -> str:
    for rule in _RULES:
        found = rule.match(row)
        if found is not None:
            return found[1] + mark + row[found.end() :]
    return row
