"""The environment variables of rollouts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from pytest_evo.plugin.declared import ARTIFACT_VARIABLE
from pytest_evo.plugin.declared import REPEAT_VARIABLE
from pytest_evo.plugin.declared import RUN_VARIABLE

ALWAYS = (
    "COVERAGE_*",
    "HOME",
    "LANG",
    "LC_*",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTEST_*",
    "PYTHON*",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "USERPROFILE",
    "VIRTUAL_ENV",
)
"""What ``env_allow`` never takes away: without it no interpreter starts."""


def rollout_environment(
    base: Mapping[str, str],
    *,
    artifact: Path,
    hidden: Iterable[str] = (),
    allow: Sequence[str] | None = None,
    run: str = "",
    repeat: int = 0,
) -> dict[str, str]:
    """The environment that a rollout gets.

    Args:
        base: the environment to start from.
        artifact: the candidate's directory.
        hidden: names or globs that rollouts must not see (keys of the proposer).
            They go even where ``allow`` names them.
        allow: names or globs that rollouts may see; None: everything not hidden.
        run: the run's id; left out where empty.
        repeat: the number of the repeat.
    """
    unwanted = tuple(hidden)
    wanted = None if allow is None else (*ALWAYS, *allow)
    kept = {
        name: value
        for name, value in base.items()
        if not _matches(name, unwanted) and (wanted is None or _matches(name, wanted))
    }
    kept[ARTIFACT_VARIABLE] = str(artifact)
    kept[REPEAT_VARIABLE] = str(repeat)
    if run:
        kept[RUN_VARIABLE] = run
    return kept


def enter_environment(wanted: Mapping[str, str]) -> None:
    """Make ``os.environ`` equal to ``wanted``, in place."""
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        set_variable(name, value)


def set_variable(name: str, value: str) -> None:
    """Set a variable of this process, unless it is so already.

    The C library copies every text that it is given.
    """
    if os.environ.get(name) != value:
        os.environ[name] = value


def conceal(hidden: Iterable[str]) -> None:
    """Take variables out of the memory that ``/proc/PID/environ`` shows.

    This process keeps them. Deleting a variable does not wipe the block that the
    program was started with, and forked children show it too.
    """
    patterns = tuple(hidden)
    names = [name for name in os.environ if _matches(name, patterns)]
    if not names or sys.platform != "linux":
        return
    import ctypes

    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    for name in names:
        value = os.environ[name]
        before = library.getenv(os.fsencode(name))
        os.environ[name] = value  # a copy elsewhere
        if before and library.getenv(os.fsencode(name)) != before:
            ctypes.memset(before, ord("-"), len(os.fsencode(value)))


@cache
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
