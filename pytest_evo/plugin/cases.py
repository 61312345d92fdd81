"""Collected items to cases: which, what their markers say, their fingerprints."""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import math
import textwrap
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any
from typing import NamedTuple

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Split
from pytest_evo.plugin.casetexts import CaseTexts
from pytest_evo.plugin.fixtures import FIXTURES
from pytest_evo.plugin.hooks import as_split
from pytest_evo.plugin.hooks import split_from_hook
from pytest_evo.plugin.plain import plain
from pytest_evo.plugin.plain import Reader
from pytest_evo.plugin.plain import without_addresses
from pytest_evo.wording import count

_NAMED = 3  # cases of one problem
_KEYWORDS = (
    "split",
    "group",
    "weight",
    "repeats",
    "timeout",
    "must_pass",
    "deterministic",
)
_WHOLE_PARAMETERS = 1_000_000  # characters of one value that a fingerprint covers


class Collected(NamedTuple):
    """The cases of a session, in the order of collection."""

    marks: tuple[CaseMark, ...]
    how: str  # why these are the cases, for the header
    items: Mapping[CaseId, pytest.Item]


def collected_marks(session: pytest.Session) -> Collected:
    """What a session's items say as cases.

    The cases are the items that are marked ``evo`` or use an ``evo_*`` fixture; if none
    is, all of them.

    Raises:
        SuiteProblem: two cases share an id, or a marker says something unusable; the
            message names all such tests.
    """
    chosen = [item for item in session.items if _is_case(item)]
    total = count(len(session.items), "test")
    how = f"{len(chosen)} of {total} marked evo or using an evo_* fixture"
    if not chosen:
        chosen = list(session.items)
        how = "all tests: none is marked evo or uses an evo_* fixture"
    items = _by_id(chosen)
    splits = split_from_hook(session.config, chosen)
    fingerprints = _Fingerprints(session.config.rootpath)
    texts = CaseTexts()
    marks = []
    problems: dict[str, list[CaseId]] = {}
    for case, item in items.items():
        try:
            said = _said(item)
        except SuiteProblem as problem:
            problems.setdefault(str(problem), []).append(case)
            continue
        said.setdefault("split", splits.get(item.nodeid))
        marks.append(
            CaseMark(
                id=case,
                file=item.location[0],
                line=(item.location[1] or 0) + 1,
                fingerprint=fingerprints.of(item),
                body=fingerprints.body(item),
                exclusive=xdist_group(item),
                texts=texts.of(item),
                **said,
            )
        )
    if problems:
        raise SuiteProblem("\n".join(map(_grouped, problems.values(), problems)))
    return Collected(tuple(marks), how, items)


def _grouped(cases: Sequence[CaseId], text: str) -> str:
    """One mistake is told once, however many parameters repeat it."""
    shown = ", ".join(cases[:_NAMED])
    more = f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
    return f"{shown}{more}: {text}"


def case_id(item: pytest.Item) -> CaseId:
    """The node id, without the group that xdist's loadgroup appends."""
    group = xdist_group(item)
    return item.nodeid.removesuffix(f"@{group}") if group else item.nodeid


def xdist_group(item: pytest.Item) -> str | None:
    """The item's ``xdist_group`` as xdist names it, or None."""
    names = {
        str(mark.args[0] if mark.args else mark.kwargs.get("name", "default"))
        for mark in item.iter_markers("xdist_group")
    }
    return "_".join(sorted(names)) or None


def _is_case(item: pytest.Item) -> bool:
    if item.get_closest_marker("evo") is not None:
        return True
    return not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _by_id(items: Sequence[pytest.Item]) -> dict[CaseId, pytest.Item]:
    found: dict[CaseId, pytest.Item] = {}
    doubled: dict[CaseId, int] = {}
    for item in items:
        case = case_id(item)
        if case in found:
            doubled[case] = doubled.get(case, 1) + 1
        found[case] = item
    if doubled:
        lines = [f"  {case} ({times} tests)" for case, times in doubled.items()]
        raise SuiteProblem(
            "several tests share one id, so their scores could not be told apart:\n"
            + "\n".join(lines[:20])
            + "\ngive each test or parameter an id of its own (and drop "
            "--keep-duplicates)"
        )
    return found


# -- the marker --------------------------------------------------------------------


def _said(item: pytest.Item) -> dict[str, Any]:
    """The keywords of all ``evo`` markers, the closest one winning."""
    said: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers("evo"))):
        if mark.args:
            raise SuiteProblem(
                "@pytest.mark.evo takes keywords only, but was given "
                f'{plain(mark.args)!r}; write @pytest.mark.evo(split="val")'
            )
        said.update(mark.kwargs)
    return {name: _checked(name, value) for name, value in said.items()}


def _checked(name: str, value: object) -> object:
    where = f"@pytest.mark.evo({name}={plain(value)!r})"
    if name not in _KEYWORDS:
        close = difflib.get_close_matches(name, _KEYWORDS, 1)
        hint = f"did you mean {close[0]}?" if close else "remove it"
        raise SuiteProblem(
            f"@pytest.mark.evo has no keyword {name!r}: {hint} (it takes "
            f"{', '.join(_KEYWORDS)})"
        )
    if name == "split":
        return as_split(value.value if isinstance(value, Split) else value, where)
    if name == "group":
        return _required(where, value, isinstance(value, str) and value, "a text")
    if name == "repeats":
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return _required(where, value, whole, "a whole number of at least 1")
    if name in ("weight", "timeout"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        good = number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]
        return float(_required(where, value, good, "a number above 0"))
    return _required(where, value, isinstance(value, bool), "True or False")


def _required(where: str, value: Any, good: object, kind: str) -> Any:
    if not good:
        raise SuiteProblem(f"{where}: write {kind}")
    return value


# -- fingerprints ------------------------------------------------------------------


class _Fingerprints:
    """Hashes of what a case is made of; files are read once."""

    def __init__(self, rootdir: Path) -> None:
        self._rootdir = rootdir
        self._files: dict[Path, str] = {}
        self._conftests: dict[Path, tuple[str, ...]] = {}
        self._reader = Reader(_WHOLE_PARAMETERS, depth=20)
        self._functions: dict[CodeType, str] = {}

    def of(self, item: pytest.Item) -> str:
        """Sha256 over parameters, source and conftests."""
        digest = hashlib.sha256()
        for part in (
            *self._parameters(item),
            *(self._file(path) for path in self._sources(item)),
            *self._seen_conftests(item.path.parent),
        ):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()

    def body(self, item: pytest.Item) -> str:
        """Sha256 over parameters and function, less its name, decorators and place.

        Empty where there is no function to be read.
        """
        code = getattr(getattr(item, "function", None), "__code__", None)
        if not isinstance(code, CodeType):
            return ""
        if code not in self._functions:
            self._functions[code] = _nameless(code)
        function = self._functions[code]
        if not function:
            return ""
        text = "\0".join([function, *self._parameters(item)])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def _parameters(self, item: pytest.Item) -> list[str]:
        callspec = getattr(item, "callspec", None)
        values: Mapping[str, object] = callspec.params if callspec else {}
        return [
            text
            for name in sorted(values)
            for text in (name, self._represent(values[name]))
        ]

    def _represent(self, value: object) -> str:
        text = without_addresses(self._reader.repr(value))
        root = str(self._rootdir)
        return text.replace(root, "<rootdir>")

    def _sources(self, item: pytest.Item) -> list[Path]:
        """The test's own file, and the one its function was written in."""
        code = getattr(getattr(item, "function", None), "__code__", None)
        written = Path(code.co_filename) if code is not None else item.path
        return [item.path] if written == item.path else [item.path, written]

    def _seen_conftests(self, directory: Path) -> tuple[str, ...]:
        if directory not in self._conftests:
            above: tuple[str, ...] = ()
            if directory != self._rootdir and directory.parent != directory:
                above = self._seen_conftests(directory.parent)
            own = directory / "conftest.py"
            here = (self._file(own),) if own.is_file() else ()
            self._conftests[directory] = above + here
        return self._conftests[directory]

    def _file(self, path: Path) -> str:
        if path not in self._files:
            try:
                content = path.read_bytes()
            except OSError:  # made by exec, or a directory
                content = b""
            self._files[path] = hashlib.sha256(content).hexdigest()
        return self._files[path]


def _nameless(code: CodeType) -> str:
    """The syntax of a function without its name and decorators."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return ""
    function = tree.body[0] if tree.body else None
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    function.name, function.decorator_list = "", []
    return ast.dump(function)
