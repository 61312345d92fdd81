"""Versions of the artifact, named by their content: directory to tree and back.

A tree keeps names, bytes, permission bits, empty folders and links that stay inside.
Names are kept as they are on disk; nothing is normalised. Byte code (``__pycache__``,
``*.pyc``), and ``.git`` are left out. No link is ever followed.
"""

from __future__ import annotations

from pytest_evo.artifact.naming import Facts
from pytest_evo.artifact.naming import facts_of
from pytest_evo.artifact.naming import is_left_out
from pytest_evo.artifact.naming import Known
from pytest_evo.artifact.naming import left_out
from pytest_evo.artifact.naming import Look
from pytest_evo.artifact.naming import make_tree
from pytest_evo.artifact.patches import Change
from pytest_evo.artifact.patches import changes
from pytest_evo.artifact.patches import diff
from pytest_evo.artifact.reading import see
from pytest_evo.artifact.reading import Seen
from pytest_evo.artifact.reading import snapshot
from pytest_evo.artifact.removal import remove
from pytest_evo.artifact.writing import restore
from pytest_evo.artifact.writing import write_entry

__all__ = [
    "Change",
    "changes",
    "diff",
    "Facts",
    "facts_of",
    "is_left_out",
    "Known",
    "left_out",
    "Look",
    "make_tree",
    "remove",
    "restore",
    "see",
    "Seen",
    "snapshot",
    "write_entry",
]
