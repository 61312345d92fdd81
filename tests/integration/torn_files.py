"""Damage a run directory the way crashes, power losses and people do."""

from __future__ import annotations

import random
from pathlib import Path

TAIL = ("cut-tail", "cut-utf8", "no-newline", "nul-tail", "half-line", "stray-files")
"""What a crash leaves: a resume must cope by itself."""
MIDDLE = ("flip-middle", "gap-middle", "empty-run-json", "half-run-json")
"""What no crash leaves: a resume must refuse it and say how to go on."""


def damage(run: Path, how: str, rng: random.Random) -> None:
    """Damage the files of a run; ``how`` is one of ``TAIL`` or ``MIDDLE``."""
    if how.endswith("run-json"):
        path = run / "run.json"
        content = path.read_bytes()
        path.write_bytes(
            b"" if how.startswith("empty") else content[: len(content) // 2]
        )
        return
    files = [run / "journal.jsonl"]
    if how in TAIL:
        files += (run / "open").glob("*.jsonl")
    for path in files:
        if path.exists():
            _damage_lines(path, how, rng)


def _damage_lines(path: Path, how: str, rng: random.Random) -> None:
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    if how == "cut-tail" and lines:
        path.write_bytes(content[: -max(1, len(lines[-1]) // 2)])
    elif how == "cut-utf8":
        path.write_bytes(content + '{"note": "caf\u00e9'.encode()[:-1])
    elif how == "no-newline":
        path.write_bytes(content.removesuffix(b"\n"))
    elif how == "nul-tail":
        path.write_bytes(content + b"\0" * 4096)
    elif how == "half-line":
        path.write_bytes(content + b'{"seq":')
    elif how == "stray-files":
        path.with_name(path.name + ".tmp").write_bytes(content[: len(content) // 3])
        path.with_name(path.name + ".lock").write_bytes(b"")
    elif how == "flip-middle":
        at = rng.randrange(len(lines) // 4, len(lines) // 2)
        lines[at] = lines[at].replace(b'"kind":"', b'"kind":"x', 1)
        path.write_bytes(b"".join(lines))
    elif how == "gap-middle":
        del lines[rng.randrange(len(lines) // 4, len(lines) // 2)]
        path.write_bytes(b"".join(lines))
