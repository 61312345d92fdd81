"""Small disks, as a tmpfs; only for those who may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def may_mount() -> bool:
    """Whether this process may mount a tmpfs."""
    with tempfile.TemporaryDirectory() as place:
        done = mount(Path(place), "size=64k")
        if done.returncode == 0:
            unmount(Path(place))
        return done.returncode == 0


def mount(place: Path, options: str) -> subprocess.CompletedProcess[str]:
    """Mount a tmpfs."""
    return subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )


def remount(place: Path, options: str) -> None:
    """Change a mounted tmpfs."""
    subprocess.run(
        ["mount", "-o", f"remount,{options}", str(place)],
        check=True,
        capture_output=True,
    )


def unmount(place: Path) -> None:
    """Take it away, whatever still uses it."""
    subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


@contextmanager
def small_disk(root: Path, name: str, options: str) -> Iterator[Path]:
    """A folder of a project on a disk of its own."""
    place = root / name
    place.mkdir(exist_ok=True)
    assert mount(place, options).returncode == 0
    try:
        yield place
    finally:
        unmount(place)


def fill(place: Path) -> Path:
    """Leave no room; returns the file that takes it."""
    ballast = place / "ballast"
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(descriptor, b"x" * 65536)
    finally:
        os.close(descriptor)
    return ballast
