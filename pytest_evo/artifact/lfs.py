"""What a Git LFS pointer stands for, found without running Git LFS."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>[0-9]{1,15})\n"
)


def large_file(data: bytes, store: Path, beside: Path) -> bytes | None:
    """The content that a pointer names; ``data`` itself where it is no pointer.

    Args:
        data: what git has.
        store: the folder ``lfs/objects`` of the repository.
        beside: the file of the same name in the working tree, which may be the same.

    Returns:
        None where the content is in neither place.
    """
    found = _POINTER.fullmatch(data)
    if found is None:
        return data
    oid = found["oid"].decode()
    for place in (store / oid[:2] / oid[2:4] / oid, beside):
        try:
            content = place.read_bytes()
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == oid:
            return content
    return None
