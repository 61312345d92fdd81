"""Pages of JUnit XML that every reader takes: one suite of testcases a page."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from datetime import UTC
from typing import Any
from typing import TypeAlias

from junitparser import Attr
from junitparser import FloatAttr
from junitparser import IntAttr
from junitparser import Properties
from junitparser import Property
from junitparser import xunit2

from pytest_evo.reports.text import one_line
from pytest_evo.reports.text import short_id

Parts: TypeAlias = tuple[bytes, ...]

MAX_CASES = 5_000
MAX_BYTES = 25_000_000


class _Seconds(FloatAttr):
    """Plain decimals: readers do not take ``1e-07``, ``nan`` or ``inf``."""

    def __set__(self, instance: Any, value: float) -> None:  # type: ignore[override]
        if not math.isfinite(value) or value < 0:
            value = 0.0
        Attr.__set__(self, instance, f"{value:.6f}")


class JunitCase(xunit2.TestCase):
    """One testcase, with the file and line that readers of sources want."""

    time = _Seconds()
    file = Attr()
    line = IntAttr()


class _Suite(xunit2.TestSuite):
    time = _Seconds()


class _Root(xunit2.JUnitXml):
    time = _Seconds()
    timestamp = Attr()
    testsuite = _Suite


def add_properties(testcase: JunitCase, pairs: Iterable[tuple[str, str]]) -> None:
    """Give a testcase its properties; they come before anything else in it."""
    properties = _container(Properties)
    for name, value in pairs:
        properties.add_property(Property(one_line(name, 100), one_line(value, 1_000)))
    append(testcase, properties)


# junitparser has types, but not on its containers and not on append


def _container(kind: Any, *arguments: str) -> Any:
    return kind(*arguments)


def append(parent: Any, child: Any) -> None:
    """Put an element into another."""
    parent.append(child)


def timestamp(created: str) -> str:
    """ISO 8601 to the second with an offset; the epoch where there is no time."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        moment = datetime.fromtimestamp(0, UTC)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above the testcases of every page."""

    name: str
    created: str  # ISO 8601
    file: str
    properties: Sequence[tuple[str, str]] = ()
    id: str | None = None


def pages(
    heading: Heading, testcases: Sequence[JunitCase], max_cases: int = MAX_CASES
) -> Parts:
    """The testcases as one document or several, none above the readers' limits."""
    chunks = [
        testcases[first : first + max_cases]
        for first in range(0, len(testcases), max_cases)
    ] or [[]]
    found: list[bytes] = []
    while chunks:
        chunk = chunks.pop(0)
        name = heading.name
        title = name if not found else f"{name}.part{len(found) + 1}"
        page = _page(heading, title, chunk)
        if len(page) > MAX_BYTES and len(chunk) > 1:
            half = len(chunk) // 2
            chunks[:0] = [chunk[:half], chunk[half:]]
        else:
            found.append(page)
    return tuple(found)


def _page(heading: Heading, name: str, testcases: Sequence[JunitCase]) -> bytes:
    suite = _container(_Suite, name)
    if heading.id is not None:
        suite.id = short_id(heading.id)
    suite.timestamp = timestamp(heading.created)
    suite.file = short_id(heading.file)
    for key, value in heading.properties:
        suite.add_property(one_line(key, 100), one_line(value, 1_000))
    suite.add_testcases(testcases)
    root = _container(_Root, name)
    root.timestamp = suite.timestamp
    root.append(suite)
    root.update_statistics()
    target = io.BytesIO()
    root.write(target)
    return target.getvalue()
