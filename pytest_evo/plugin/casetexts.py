"""What a case is made of, as hashes: its parameters, its literals, what it compares.

The controller needs them to keep expected answers and held-out cases out of evidence,
and to see when an edit copies cases. It gets spots, never the texts.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import deque
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from itertools import zip_longest
from types import CodeType
from types import FunctionType
from types import GetSetDescriptorType
from types import MemberDescriptorType
from types import ModuleType
from typing import Any
from typing import NamedTuple

import pytest

from pytest_evo.spots import spots_of

SOURCE = ""
"""The path of texts that stand in the test itself."""
COMPARED = "="
"""In front of the path of what the test compares something with."""
_DEEPEST = 6
_MOST_PARTS = 1_000  # of one parameter
_LONG_INT = 1_024  # bits; Python does not write what has thousands of digits
_MOST_SPOTS = 400  # of one case
_LEAST_LITERAL = 12
_UNCHANGED = frozenset(
    ("str", "set", "frozenset", "sorted", "list", "tuple", "dict", "int", "float")
)
_PLAIN_ACCESS = (MemberDescriptorType, GetSetDescriptorType)
_TRIMMING = frozenset(("strip", "lower", "upper", "casefold", "title", "items"))


class Leaf(NamedTuple):
    """One plain value of a parameter: ``case.expected`` and what stands there."""

    path: str
    text: str


class Written(NamedTuple):
    """What the source of a test says."""

    compared: frozenset[str] = frozenset()  # paths of parameters
    answers: tuple[str, ...] = ()  # literals that something is compared with
    literals: tuple[str, ...] = ()  # other texts


class CaseTexts:
    """Reads cases; each function once."""

    def __init__(self) -> None:
        self._written: dict[CodeType, Written] = {}

    def of(self, item: pytest.Item) -> tuple[tuple[str, str], ...]:
        """Spots by path, each path once; paths that are compared begin with ``=``."""
        written = self._source(item)
        rows: dict[str, dict[str, None]] = {}
        left = _MOST_SPOTS
        for leaf in (*_leaves_of(item), *_literals(written)):
            path = leaf.path
            if _is_below(path, written.compared):
                path = COMPARED + path
            for spot in spots_of(leaf.text):
                if left and spot not in rows.setdefault(path, {}):
                    rows[path][spot] = None
                    left -= 1
        return tuple((path, "".join(spots)) for path, spots in rows.items() if spots)

    def _source(self, item: pytest.Item) -> Written:
        function = getattr(item, "function", None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        if not isinstance(code, CodeType):
            return Written()
        if code not in self._written:
            self._written[code] = _read(code)
        return self._written[code]


def _leaves_of(item: pytest.Item) -> Iterator[Leaf]:
    callspec = getattr(item, "callspec", None)
    values: Mapping[str, object] = callspec.params if callspec else {}
    for name, value in values.items():
        yield from leaves(name, value)


def _literals(written: Written) -> Iterator[Leaf]:
    for text in written.answers:
        yield Leaf(COMPARED + SOURCE, text)
    for text in written.literals:
        yield Leaf(SOURCE, text)


def _is_below(path: str, compared: AbstractSet[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:size]) in compared for size in range(1, len(parts) + 1))


def leaves(path: str, value: object) -> Iterator[Leaf]:
    """The texts and numbers in a value, by its true type; none of its code is run."""
    waiting: deque[tuple[str, Any, int]] = deque([(path, value, 0)])
    looked = 0
    while waiting and looked < _MOST_PARTS:
        path, part, depth = waiting.popleft()
        looked += 1
        kind = type(part)
        if issubclass(kind, str):
            yield Leaf(path, str.__str__(part))
        elif issubclass(kind, bytes):
            yield Leaf(path, bytes.decode(part, "utf-8", "replace"))
        elif issubclass(kind, int):
            if kind is not bool and int.bit_length(part) < _LONG_INT:
                yield Leaf(path, int.__repr__(part))
        elif issubclass(kind, float):
            yield Leaf(path, float.__repr__(part))
        elif depth < _DEEPEST:
            waiting.extend(
                (f"{path}.{name}" if name else path, inner, depth + 1)
                for name, inner in islice(_parts(part), _MOST_PARTS)
            )


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if issubclass(kind, dict):
        for key, inner in dict.items(value):
            yield (key if type(key) is str else ""), inner
    elif issubclass(kind, tuple):
        names = kind.__dict__.get("_fields", ())
        yield from zip_longest(names, tuple.__iter__(value), fillvalue="")
    elif issubclass(kind, (list, set, frozenset)):
        base = next(one for one in (list, set, frozenset) if issubclass(kind, one))
        yield from (("", inner) for inner in base.__iter__(value))
    elif not issubclass(kind, (type, ModuleType, FunctionType)):
        yield from _attributes(value, kind)


def _attributes(value: object, kind: type) -> Iterator[tuple[str, object]]:
    """What an object holds in ``__dict__`` and slots; properties are not asked."""
    for base in kind.__mro__:
        for name, descriptor in base.__dict__.items():
            if type(descriptor) not in _PLAIN_ACCESS:
                continue
            if name == "__dict__":
                yield from dict.items(descriptor.__get__(value, kind))
            elif type(descriptor) is MemberDescriptorType and name[:2] != "__":
                try:
                    yield name, descriptor.__get__(value, kind)
                except AttributeError:  # a slot that is empty
                    continue


# -- the source --------------------------------------------------------------------


def _read(code: CodeType) -> Written:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return Written()
    function = tree.body[0] if tree.body else None
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return Written()
    compared: set[str] = set()
    answers: list[str] = []
    literals: list[str] = []
    body = function.body[ast.get_docstring(function, clean=False) is not None :]
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Compare):
            for side in _sides(node):
                path = _path(side)
                if path:
                    compared.add(path)
                else:
                    answers += _constants(side)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            literals.append(node.value)
    others = [
        text for text in literals if len(text) >= _LEAST_LITERAL and text not in answers
    ]
    return Written(frozenset(compared), tuple(answers), tuple(others))


def _sides(node: ast.Compare) -> Iterator[ast.expr]:
    """What stands for an answer: both sides of ``==``, the left one of ``in``."""
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, ast.Eq):
            yield from (left, right)
        elif isinstance(operator, ast.In):
            yield left
        left = right


def _path(node: ast.expr) -> str:
    """``case["expected"].strip()`` as ``case.expected``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = _path(node.value)
        return f"{above}.{node.attr}" if above else ""
    if isinstance(node, ast.Subscript):
        above, key = _path(node.value), node.slice
        if above and isinstance(key, ast.Constant):
            return f"{above}.{key.value}" if isinstance(key.value, str) else above
        return ""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _TRIMMING:
            return _path(node.func.value)
        named = isinstance(node.func, ast.Name) and node.func.id in _UNCHANGED
        if named and len(node.args) == 1:
            return _path(node.args[0])
    return ""


def _constants(node: ast.expr) -> list[str]:
    """The plain values in a literal; nothing of an expression that calls."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    return [leaf.text for leaf in leaves("", value)]
