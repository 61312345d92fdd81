"""Keeps the examples that hypothesis remembers of one candidate from the others.

Its database lies in the project and is read first: an example that broke one candidate
would be tried on the next, which then fails sooner than by its own luck.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

_VARIABLE = "HYPOTHESIS_STORAGE_DIRECTORY"
_HOME = ".hypothesis"
_DERIVED = ("constants", "unicode_data")  # from code and Python alone; slow to make


def forget_examples(place: Path) -> None:
    """Give hypothesis a home below ``place`` without examples, used or not yet.

    What it has computed from source code and from Python's tables is still found.
    """
    home = place / _HOME
    loaded: Any = sys.modules.get("hypothesis.configuration")
    known = Path(os.environ.get(_VARIABLE, _HOME)).absolute()
    os.environ[_VARIABLE] = str(home)
    if loaded is not None:
        loaded.set_hypothesis_home_dir(home)
    for name in _DERIVED:
        if (known / name).is_dir():
            home.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # no links here: it is made again
                (home / name).symlink_to(known / name)
