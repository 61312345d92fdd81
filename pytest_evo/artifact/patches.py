"""What differs between two versions: a list, and a patch that git can apply."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal
from typing import TypeAlias

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

Change: TypeAlias = Literal["added", "modified", "deleted"]
_Opcode: TypeAlias = tuple[str, int, int, int, int]
_CONTEXT = 3
_MOST_WORK = 2_000_000  # lines times lines that difflib may compare


def changes(old: Tree, new: Tree) -> tuple[tuple[str, Change], ...]:
    """The paths that differ, in order. Folders count only where they are empty."""
    if [(one.path, one.kind) for one in old.entries] == [
        (one.path, one.kind) for one in new.entries
    ]:
        pairs = zip(old.entries, new.entries, strict=True)
        return _modified(pairs)
    before, after = _leaves(old), _leaves(new)
    found: list[tuple[str, Change]] = []
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        if now is None:
            # a folder that only ceased to be empty is told by what is in it
            if was and was[0] == "dir" and _has(new, path):
                continue
            found.append((path, "deleted"))
        elif was is None:
            if now[0] == "dir" and _has(old, path):
                continue
            found.append((path, "added"))
        else:
            found.append((path, "modified"))
    return tuple(found)


def _modified(
    pairs: Iterable[tuple[TreeEntry, TreeEntry]],
) -> tuple[tuple[str, Change], ...]:
    paths = sorted(now.path for was, now in pairs if _edited(was, now))
    return tuple((path, "modified") for path in paths)


def _edited(old: TreeEntry, new: TreeEntry) -> bool:
    """Whether two entries of one path and kind are different contents."""
    if old is new or new.kind == "dir":
        return False
    return _told(old) != _told(new)


def _told(entry: TreeEntry) -> tuple[str, bool]:
    runs = entry.kind == "file" and bool(entry.mode & 0o100)
    return entry.blob or entry.target, runs


def _has(tree: Tree, folder: str) -> bool:
    return any(entry.path == folder and entry.kind == "dir" for entry in tree.entries)


def _leaves(tree: Tree) -> dict[str, tuple[str, str, bool]]:
    parents = {entry.path.rpartition("/")[0] for entry in tree.entries}
    return {
        entry.path: (entry.kind, *_told(entry))
        for entry in tree.entries
        if entry.kind != "dir" or entry.path not in parents
    }


def diff(
    old: Tree,
    new: Tree,
    blobs: BlobStore,
    *,
    binary: bool = False,
    directory: str = "",
) -> str:
    """The difference as a unified patch, for people and ``git apply``.

    Write it with ``newline=""``: line ends are those of the files. Folders and
    permissions other than the execute bit are no part of it.

    Args:
        old: the version that the patch starts from.
        new: the version that it leads to.
        blobs: holds the contents of both.
        binary: put binary contents in, so that git can apply those too; otherwise
            they are only noted.
        directory: where both lie, put before every path; "" for none.
    """
    head = f"{directory.strip('/')}/" if directory else ""
    before, after = _files(old), _files(new)
    parts: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was and now and was.kind != now.kind:
            # git tells a file that became a link as two changes
            parts += _section(head + path, was, None, blobs, binary)
            was = None
        if was is None or now is None or _facts(was) != _facts(now):
            parts += _section(head + path, was, now, blobs, binary)
    return "".join(parts)


def _files(tree: Tree) -> dict[str, TreeEntry]:
    return {entry.path: entry for entry in tree.entries if entry.kind != "dir"}


def _facts(entry: TreeEntry) -> tuple[str, str]:
    return _mode(entry), entry.blob or entry.target


def _mode(entry: TreeEntry) -> str:
    if entry.kind == "link":
        return "120000"
    return "100755" if entry.mode & 0o100 else "100644"


def _section(
    path: str,
    was: TreeEntry | None,
    now: TreeEntry | None,
    blobs: BlobStore,
    binary: bool,
) -> Iterator[str]:
    """The lines of one path."""
    a, b = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    yield f"diff --git {a} {b}\n"
    if was is None and now is not None:
        yield f"new file mode {_mode(now)}\n"
    elif now is None and was is not None:
        yield f"deleted file mode {_mode(was)}\n"
    elif was is not None and now is not None and _mode(was) != _mode(now):
        yield f"old mode {_mode(was)}\nnew mode {_mode(now)}\n"
    old, new = _content(was, blobs), _content(now, blobs)
    if old == new and was is not None and now is not None:
        return
    index = f"index {_git_name(was, old)}..{_git_name(now, new)}"
    same = was is not None and now is not None and _mode(was) == _mode(now)
    yield f"{index} {_mode(was)}\n" if same and was else f"{index}\n"
    old_text, new_text = _text(old), _text(new)
    if old_text is None or new_text is None:
        yield from _binary(old, new, a, b) if not binary else _literals(old, new)
    elif old_text != new_text:
        yield f"--- {'/dev/null' if was is None else _padded(a)}\n"
        yield f"+++ {'/dev/null' if now is None else _padded(b)}\n"
        yield from _hunks(_lines(old_text), _lines(new_text))


def _content(entry: TreeEntry | None, blobs: BlobStore) -> bytes:
    if entry is None:
        return b""
    return entry.target.encode() if entry.kind == "link" else blobs.get(entry.blob)


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _git_name(entry: TreeEntry | None, data: bytes) -> str:
    if entry is None:
        return "0" * 40
    start = b"blob %d\0" % len(data)
    return hashlib.sha1(start + data, usedforsecurity=False).hexdigest()


def _quoted(name: str) -> str:
    if not any(sign in '"\\' or sign < " " or sign == "\x7f" for sign in name):
        return name
    out = ""
    for sign in name:
        if sign in '"\\':
            out += f"\\{sign}"
        elif sign < " " or sign == "\x7f":
            out += f"\\{ord(sign):03o}"
        else:
            out += sign
    return f'"{out}"'


def _padded(name: str) -> str:
    """A name with a blank needs a tab behind it, or its end is not seen."""
    return f"{name}\t" if " " in name and not name.startswith('"') else name


# -- binary --------------------------------------------------------------------------


def _binary(old: bytes, new: bytes, a: str, b: str) -> Iterator[str]:
    yield f"Binary files {a} ({len(old)} bytes) and {b} ({len(new)} bytes) differ\n"


def _literals(old: bytes, new: bytes) -> Iterator[str]:
    yield "GIT binary patch\n"
    for data in (new, old):
        yield f"literal {len(data)}\n"
        packed = zlib.compress(data)
        for at in range(0, len(packed), 52):
            chunk = packed[at : at + 52]
            size = len(chunk)
            sign = chr(64 + size) if size <= 26 else chr(70 + size)
            yield f"{sign}{base64.b85encode(chunk, pad=True).decode()}\n"
        yield "\n"


# -- text ----------------------------------------------------------------------------


def _lines(text: str) -> list[str]:
    """Lines as git sees them: only a line feed ends one."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for group in _grouped(_opcodes(old, new)):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{_span(i1, i2)} +{_span(j1, j2)} @@\n"
        for tag, start, end, other, other_end in group:
            if tag == "equal":
                yield from map(" ".__add__, map(_ended, old[start:end]))
            else:
                yield from map("-".__add__, map(_ended, old[start:end]))
                yield from map("+".__add__, map(_ended, new[other:other_end]))


def _span(start: int, end: int) -> str:
    size = end - start
    first = start if size == 0 else start + 1
    return f"{first}" if size == 1 else f"{first},{size}"


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[_Opcode]:
    """What difflib says, but never slow: a hostile file must not stop the run."""
    head = 0
    most = min(len(old), len(new))
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    left = old[head : len(old) - tail]
    right = new[head : len(new) - tail]
    inner: Sequence[_Opcode] = [("replace", 0, len(left), 0, len(right))]
    if len(left) * len(right) <= _MOST_WORK:
        inner = SequenceMatcher(None, left, right).get_opcodes()
    found: list[_Opcode] = [("equal", 0, head, 0, head)] if head else []
    found += [
        (tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in inner
    ]
    if tail:
        old_end, new_end = len(old), len(new)
        found.append(("equal", old_end - tail, old_end, new_end - tail, new_end))
    return found


def _grouped(opcodes: Sequence[_Opcode]) -> Iterator[list[_Opcode]]:
    """Cut long equal stretches down to the context around the changes."""
    group: list[_Opcode] = []
    for number, (tag, a, b, c, d) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        first, last = number == 0, number == len(opcodes) - 1
        if first:
            group.append((tag, max(a, b - _CONTEXT), b, max(c, d - _CONTEXT), d))
        elif last:
            group.append((tag, a, min(b, a + _CONTEXT), c, min(d, c + _CONTEXT)))
        elif b - a <= 2 * _CONTEXT:
            group.append((tag, a, b, c, d))
        else:
            group.append((tag, a, a + _CONTEXT, c, c + _CONTEXT))
            yield group
            group = [(tag, b - _CONTEXT, b, d - _CONTEXT, d)]
    if any(tag != "equal" for tag, *_ in group):
        yield group
