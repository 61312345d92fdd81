"""How the ``pytest-evo`` command writes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from pytest_evo.reports.console import Line
from pytest_evo.reports.text import visible

_ANSI = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def write_json(value: object) -> None:
    """Write a value for programs."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def write(lines: Iterable[Line]) -> None:
    """Write lines to stdout, in colour where that is a terminal."""
    colours = _colours(sys.stdout)
    for line in lines:
        text = line.text
        if line.style and colours:
            text = f"\x1b[{_ANSI[line.style]}m{text}\x1b[0m"
        sys.stdout.write(f"{text}\n")


def _colours(stream: IO[str]) -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def flat(text: str) -> str:
    """A text as one visible line."""
    return visible(" ".join(text.split()))


def short_path(path: Path) -> str:
    """Relative to the working directory where it is below it."""
    full = path.absolute()
    here = Path.cwd()
    return str(full.relative_to(here) if full.is_relative_to(here) else full)


def be_tolerant(*streams: object) -> None:
    """A name that the terminal's encoding lacks is shown as an escape."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
