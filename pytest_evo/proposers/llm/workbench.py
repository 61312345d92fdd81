"""The files of one proposal: every name that a model gives goes through the guard."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.checks import check_tree
from pytest_evo.artifact.guard import delete_inside
from pytest_evo.artifact.guard import read_inside
from pytest_evo.artifact.guard import resolve_inside
from pytest_evo.artifact.guard import write_inside
from pytest_evo.artifact.patches import changes
from pytest_evo.artifact.schema import editable
from pytest_evo.artifact.schema import kind_of
from pytest_evo.artifact.schema import rule_for
from pytest_evo.artifact.trees import remove
from pytest_evo.artifact.trees import restore
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Tree

EVIDENCE = "evidence"
MOST_LINES = 400
MOST_SHOWN = 24_000
"""Characters of one answer of a tool."""
_MOST_FOUND = 60
_MOST_NAMES = 400
_REDACTED = "[redacted"


class Workbench:
    """Reads and edits ``artifact/``, reads ``evidence/``.

    A path is taken in the artifact; ``evidence/...`` names evidence and ``artifact/``
    in front may be left out. Files named ``.env`` or ``.env.*`` hold secrets and can
    neither be read nor changed.

    Args:
        workspace: holds both folders.
        schema: what may change.
        hide: takes secrets out of what is read.

    Raises:
        ProposalRefused: from each method, where it cannot be done; the message is
            what the model is told, and nothing was changed.
    """

    def __init__(
        self, workspace: Path, schema: ArtifactSchema, hide: Callable[[str], str] = str
    ) -> None:
        self.root = workspace / "artifact"
        self._evidence = workspace / EVIDENCE
        self._schema = schema
        self._hide = hide
        self._blobs = MemoryBlobs()
        self._base = self._snapshot()

    # -- looking ---------------------------------------------------------------------

    def names(self) -> list[str]:
        """The files of the artifact, as they are now."""
        tree = self._snapshot()
        return [
            entry.path
            for entry in tree.entries
            if entry.kind == "file" and not is_secret(entry.path)
        ]

    def listing(self, folder: str = "") -> str:
        """Files below a folder, with size, kind and whether they may change."""
        plain = folder.strip().strip("/").removeprefix("./")
        if plain == EVIDENCE or plain.startswith(f"{EVIDENCE}/"):
            rows = sorted(self._evidence_names(plain))
        else:
            rows = list(self._artifact_rows(_bare(plain)))
        if not rows:
            raise ProposalRefused(f"There is nothing below {folder!r}.")
        more = len(rows) - _MOST_NAMES
        if more > 0:
            rows = [*rows[:_MOST_NAMES], f"... and {more} more"]
        return "\n".join(rows)

    def _artifact_rows(self, folder: str) -> Iterator[str]:
        for entry in self._snapshot().entries:
            inside = not folder or entry.path.startswith(f"{folder}/")
            if entry.kind != "file" or not inside or is_secret(entry.path):
                continue
            rule = rule_for(self._schema, entry.path)
            row = (
                f"{entry.path}  {entry.size} bytes, {kind_of(self._schema, entry.path)}"
            )
            if not editable(self._schema, entry.path):
                row += ", read-only"
            if rule is not None and rule.about:
                row += f": {rule.about}"
            yield row

    def _evidence_names(self, folder: str) -> Iterator[str]:
        for place, _, files in os.walk(self._evidence):
            for file in files:
                path = Path(place, file)
                name = f"{EVIDENCE}/{path.relative_to(self._evidence).as_posix()}"
                if folder == EVIDENCE or name.startswith(f"{folder}/"):
                    yield f"{name}  {path.lstat().st_size} bytes"

    def text(self, path: str) -> str:
        """A file as text, secrets taken out."""
        return self._hide(_decoded(path, self._bytes(path)))

    def read(self, path: str, first: int = 1, lines: int = MOST_LINES) -> str:
        """Some lines of a file, and how many there are."""
        rows = self.text(path).splitlines(keepends=True)
        start = max(1, first) - 1
        shown = rows[start : start + max(1, min(lines, MOST_LINES))]
        text = "".join(shown)
        if len(text) > MOST_SHOWN:
            text = text[:MOST_SHOWN] + "\n[... cut; read fewer lines]"
        if start == 0 and len(shown) == len(rows):
            return text or "[the file is empty]"
        last = start + len(shown)
        return f"[lines {start + 1} to {last} of {len(rows)}]\n{text}"

    def search(self, text: str, folder: str = "") -> str:
        """Lines that hold a text, upper and lower case the same."""
        if not text.strip():
            raise ProposalRefused("Give a text to search for.")
        wanted = text.casefold()
        plain = folder.strip().strip("/")
        paths = (
            sorted(row.split("  ")[0] for row in self._evidence_names(plain))
            if plain.startswith(EVIDENCE)
            else [name for name in self.names() if name.startswith(_bare(plain))]
        )
        found: list[str] = []
        for path in paths:
            try:
                rows = self.text(path).splitlines()
            except ProposalRefused:
                continue  # not a text
            found += [
                f"{path}:{number}: {row.strip()[:300]}"
                for number, row in enumerate(rows, 1)
                if wanted in row.casefold()
            ]
        if not found:
            return f"No line holds {text!r}."
        more = len(found) - _MOST_FOUND
        return "\n".join(found[:_MOST_FOUND]) + (
            f"\n... and {more} more" if more > 0 else ""
        )

    # -- editing ---------------------------------------------------------------------

    def write(self, path: str, content: str) -> str:
        """Write a whole file."""
        name = self._to_change(path)
        old = self._old(name)
        data = _encoded(path, content)
        if len(data) > self._schema.max_bytes:
            raise ProposalRefused(
                f"{path!r} would have {len(data)} bytes; {self._schema.max_bytes} are "
                "allowed for all files together."
            )
        if _REDACTED in content and _REDACTED not in (old or ""):
            raise ProposalRefused(
                f"{path!r} would hold {_REDACTED!r}, which stands for a secret that is "
                "not shown to you. Change only the other parts, with an exact edit."
            )
        write_inside(self.root, name, data)
        return f"{name} is {'written' if old is None else 'replaced'}."

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once."""
        name = self._to_change(path)
        text = _decoded(path, read_inside(self.root, name))
        if not old:
            raise ProposalRefused("The text to replace is empty. Write the whole file.")
        if "\r\n" in text and "\r\n" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        count = text.count(old)
        if count != 1:
            raise ProposalRefused(
                f"The text to replace occurs {count} times in {path!r}; it has to "
                "occur exactly once. Read the file, and give more lines around it."
            )
        write_inside(self.root, name, _encoded(path, text.replace(old, new)))
        return f"{name} is changed."

    def move(self, path: str, target: str) -> str:
        """Give a file another name."""
        name, place = self._to_change(path), self._to_change(target)
        if self._old(place) is not None:
            raise ProposalRefused(f"{target!r} is there already. Delete it first.")
        mode = (self.root / name).lstat().st_mode & 0o777
        data = read_inside(self.root, name)
        write_inside(self.root, place, data).chmod(mode)
        delete_inside(self.root, name)
        return f"{name} is {place} now."

    def delete(self, path: str) -> str:
        """Delete a file."""
        name = self._to_change(path)
        delete_inside(self.root, name)
        return f"{name} is deleted."

    @contextmanager
    def together(self) -> Iterator[None]:
        """All edits inside are made, or none."""
        before = self._snapshot()
        try:
            yield
        except ProposalRefused:
            remove(self.root)
            restore(before, self._blobs, self.root)
            raise

    # -- what came of it -------------------------------------------------------------

    def changed(self) -> dict[str, str]:
        """Changed paths, with added, modified or deleted."""
        return dict(changes(self._base, self._snapshot()))

    def check(self) -> None:
        """The static checks that the whole proposal has to pass."""
        check_tree(self._base, self._snapshot(), self._blobs, self._schema)

    # -- places ----------------------------------------------------------------------

    def _snapshot(self) -> Tree:
        try:
            return snapshot(
                self.root,
                self._blobs,
                max_bytes=self._schema.max_bytes,
                max_files=self._schema.max_files,
            )
        except ArtifactProblem as error:
            raise ProposalRefused(f"The files cannot be used: {error}") from error

    def _bytes(self, path: str) -> bytes:
        plain = path.removeprefix("./")
        if plain.startswith(f"{EVIDENCE}/"):
            return read_inside(self._evidence, plain.removeprefix(f"{EVIDENCE}/"))
        return read_inside(self.root, self._resolved(path))

    def _resolved(self, path: str) -> str:
        place = resolve_inside(self.root, _bare(path))
        name = place.relative_to(self.root).as_posix()
        if is_secret(name):
            raise ProposalRefused(f"{path!r} holds secrets; leave it alone.")
        return name

    def _to_change(self, path: str) -> str:
        if path.removeprefix("./").startswith(f"{EVIDENCE}/"):
            raise ProposalRefused(f"{path!r}: evidence cannot be changed.")
        name = self._resolved(path)
        if not editable(self._schema, name):
            globs = ", ".join(rule.path for rule in self._schema.files if rule.edit)
            raise ProposalRefused(
                f"{path!r} may not change. These may: {globs or 'none'}."
            )
        return name

    def _old(self, name: str) -> str | None:
        if not (self.root / name).exists():
            return None
        return read_inside(self.root, name).decode("utf-8", "replace")


def is_secret(path: str) -> bool:
    """Whether a file keeps variables that nobody outside should see."""
    name = path.rpartition("/")[2].casefold()
    return name == ".env" or name.startswith(".env.")


def _bare(path: str) -> str:
    return path.removeprefix("./").removeprefix("artifact/")


def _decoded(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProposalRefused(
            f"{path!r} is no text ({len(data)} bytes). It can be deleted or replaced."
        ) from None


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ProposalRefused(
            f"The text for {path!r} holds half a character and cannot be written."
        ) from None
