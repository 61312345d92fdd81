"""A project in a temporary directory whose pool a test drives."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pool_driver
import pytest

WAYS = pytest.mark.parametrize("way", ["-n0", "-n2"])


@pytest.fixture
def project(pytester):
    artifact = pytester.mkdir("artifact")
    (artifact / "word.txt").write_text("right\n")
    pytester.path.joinpath("pool_driver.py").write_text(
        Path(pool_driver.__file__).read_text()
    )
    return Project(pytester)


class Project:
    def __init__(self, pytester):
        self.pytester = pytester
        self.path = pytester.path

    def tests(self, source):
        self.pytester.makepyfile(test_it=source)

    def drive(self, body):
        lines = [
            "async def drive(driver):",
            *("    " + line for line in body.splitlines()),
        ]
        self.path.joinpath("drive.py").write_text("import asyncio\n" + "\n".join(lines))

    def run(self, way, *args, status=0, environment=None, timeout=60):
        for name, value in (environment or {}).items():
            self.pytester._monkeypatch.setenv(name, value)
        with signals_from_outside(self.path):
            result = self.pytester.runpytest_subprocess(
                *("-p", "pool_driver", "-p", "no:cacheprovider", way, *args),
                timeout=timeout,
            )
        assert result.ret == status, result.stdout.str() + result.stderr.str()
        self.output = result.stdout.str() + result.stderr.str()
        return self.result()

    def start(self, way, *args, environment=None):
        """Start in the background, as a group of its own like a terminal's job."""
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "pool_driver", way, *args],
            cwd=self.path,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def result(self):
        file = self.path / "result.json"
        return json.loads(file.read_text())["rows"] if file.exists() else None


@contextmanager
def signals_from_outside(folder):
    """Send the signals that tests ask for by a file ``signal-PID-NUMBER``.

    A test process cannot signal its worker itself, where the system can prevent it.
    """
    over = threading.Event()

    def send():
        while not over.wait(0.02):
            for file in folder.glob("signal-*-*"):
                _, pid, number = file.name.split("-")
                file.unlink()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), int(number))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def outcomes(rows):
    return {row["case"].partition("::")[2]: row["outcome"] for row in rows}


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
