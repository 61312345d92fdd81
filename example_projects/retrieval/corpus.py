"""The corpus: docstrings of the standard library and the topics of `help()`.

Passages are read from the sources with `ast`, so nothing of the library is imported
or run. Their ids do not depend on the machine, only on the Python version:
`json.loads`, `pathlib.Path.glob`, `topics:lambda`, `topics:lambda#2`.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

# Of what is cached; raise it when passages, or the fields of index.py, change.
FORM = 1
CACHE = Path(__file__).parent / ".cache"
# Chapters of `help()` that repeat, word for word, topics of their own.
REPEATED_TOPICS = frozenset({"compound", "specialnames"})
TOPIC_WORDS = 150  # a topic is cut at a paragraph once a passage has this many words

# Written in C but documented in a Python twin, or moved into a private submodule
# between the versions supported here: the id is the name that people import.
PUBLIC_NAMES = {
    "_collections_abc": "collections.abc",
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "_pyio": "io",
    "concurrent.futures._base": "concurrent.futures",
    "importlib.resources._common": "importlib.resources",
    "pathlib._abc": "pathlib",
    "pathlib._local": "pathlib",
    "tomllib._parser": "tomllib",
    "zipfile._path": "zipfile",
}
# Tests, and parts that Linux distributions leave out or package separately.
LEFT_OUT = frozenset(
    {
        "__phello__",
        "distutils",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "msilib",
        "pydoc_data",
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "tkinter",
        "turtle",
        "turtledemo",
        "venv",
    }
)


@dataclass(frozen=True, slots=True)
class Passage:
    """One documented thing, or a part of one `help()` topic."""

    id: str
    kind: str  # module | class | function | method | topic
    text: str  # the docstring
    arguments: str = ""  # names of the parameters
    parent: str = ""  # id of the class or module that it belongs to


@cache
def load_passages() -> tuple[Passage, ...]:
    """Read all passages, sorted by id; the first call on a machine collects them."""
    path = cache_directory() / "passages.jsonl"
    if not path.exists():
        passages = sorted(_collect(), key=lambda passage: passage.id)
        lines = [
            json.dumps(
                {name: getattr(passage, name) for name in Passage.__slots__},
                ensure_ascii=False,
            )
            for passage in passages
        ]
        write_atomically(path, "\n".join(lines).encode())
        return tuple(passages)
    return tuple(
        Passage(**json.loads(line))
        for line in path.read_text(encoding="utf-8").split("\n")
    )


@cache
def cache_directory() -> Path:
    """Where everything derived from this interpreter's library is kept."""
    source = f"{FORM} {sys.version} {sysconfig.get_path('stdlib')}"
    key = sha256(source.encode()).hexdigest()[:12]
    major, minor = sys.version_info[:2]
    return CACHE / f"python{major}.{minor}-{key}"


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in place whole, whoever else is writing the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    Path(name).replace(path)


def _collect() -> Iterator[Passage]:
    seen: set[str] = set()
    for passage in (*_library(), *_topics()):
        if passage.id not in seen:
            seen.add(passage.id)
            yield passage


def _library() -> Iterator[Passage]:
    root = Path(sysconfig.get_path("stdlib"))
    names = {path: _module_name(path.relative_to(root)) for path in root.rglob("*.py")}
    # public modules first: of two docstrings under one id theirs is kept
    for path in sorted(names, key=lambda path: (names[path] in PUBLIC_NAMES, path)):
        name = PUBLIC_NAMES.get(names[path], names[path])
        if name and not _is_private(name):
            tree = ast.parse(path.read_bytes())
            yield from _describe(tree, name, kind="module", parent="")


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    if LEFT_OUT.intersection(parts):
        return ""
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split("."))


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _describe(
    node: _Documented, name: str, *, kind: str, parent: str
) -> Iterator[Passage]:
    text = ast.get_docstring(node)
    if text and text.strip():
        yield Passage(name, kind, text.strip(), _arguments(node), parent)
    if kind in ("module", "class"):
        for child in _definitions(node.body):
            if not child.name.startswith("_"):
                is_class = isinstance(child, ast.ClassDef)
                inner = "method" if kind == "class" else "function"
                yield from _describe(
                    child,
                    f"{name}.{child.name}",
                    kind="class" if is_class else inner,
                    parent=name,
                )


def _definitions(
    body: list[ast.stmt],
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):  # definitions by platform
            for branch in (node.body, node.orelse, getattr(node, "finalbody", [])):
                yield from _definitions(branch)


def _arguments(node: _Documented) -> str:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    given = node.args
    names = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return " ".join(name for name in names if name not in ("self", "cls"))


def _topics() -> Iterator[Passage]:
    path = Path(sysconfig.get_path("stdlib"), "pydoc_data", "topics.py")
    tree = ast.parse(path.read_bytes())
    assigned = next(node for node in tree.body if isinstance(node, ast.Assign))
    topics = ast.literal_eval(assigned.value)
    for name, text in sorted(topics.items()):
        if name in REPEATED_TOPICS:
            continue
        for number, part in enumerate(_cut(text), start=1):
            suffix = "" if number == 1 else f"#{number}"
            yield Passage(f"topics:{name}{suffix}", "topic", part)


def _cut(text: str) -> Iterator[str]:
    part: list[str] = []
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        part.append(paragraph)
        if sum(len(piece.split()) for piece in part) >= TOPIC_WORDS:
            yield "\n\n".join(part)
            part = []
    if part:
        yield "\n\n".join(part)
