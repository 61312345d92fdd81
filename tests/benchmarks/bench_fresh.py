"""What a fresh rollout costs against a new interpreter, on a suite that loads litellm.

Run it by ``python tests/benchmarks/bench_fresh.py [REQUESTS]``. It prints both medians
and their ratio, measured in turn in one run; the promise is a ratio of at most 1/5.
litellm is told not to fetch its price list while it is imported, so that no network is
part of the figures.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_evo.plugin.frames import frame_pair
from pytest_evo.plugin.isolation.fresh import describe_session
from pytest_evo.plugin.isolation.fresh import FreshTask
from pytest_evo.plugin.isolation.fresh import Zygote
from pytest_evo.plugin.isolation.mount import probe

SUITE = """
from pathlib import Path

import litellm

PROMPT = (Path(__file__).parent / "artifact" / "prompt.txt").read_text()


def test_prompt():
    assert litellm.__name__ and PROMPT == "brief"
"""
_REQUESTS = "BENCH_REQUESTS"
_RESULT = "BENCH_RESULT"


class _Bench:
    """Takes the place of the session's loop in the process that is measured."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        start = time.perf_counter()
        zygote = Zygote.start(describe_session(session.config))
        ready = time.perf_counter() - start
        fresh, cold = [], []
        try:
            for number in range(int(os.environ[_REQUESTS])):
                cold.append(_cold(session.config.rootpath))
                fresh.append(_fresh(zygote, session, number))
        finally:
            zygote.close()
        result = {"ready": ready, "fresh": fresh, "cold": cold}
        Path(os.environ[_RESULT]).write_text(json.dumps(result))
        return True


def _cold(project: Path) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_suite.py"],
        cwd=project,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - start


def _fresh(zygote: Zygote, session: pytest.Session, number: int) -> float:
    root = session.config.rootpath
    artifact = root / "artifact"
    start = time.perf_counter()
    task = FreshTask(
        runs=tuple((item.nodeid, 0) for item in session.items),
        candidate=str(root / "candidate"),
        artifact=str(artifact),
        project=str(root),
        mount=probe(artifact) is None,
        basetemp=str(root / f"tmp{number}"),
        log=str(root / "log"),
    )
    reader, descriptor = frame_pair()
    zygote.fork(task, descriptor)
    os.close(descriptor)
    outcomes: list[Any] = []
    ended = False
    while not ended:
        select.select([reader, zygote], [], [], 60)
        for message in reader.messages():
            if message.kind == "rollout":
                outcomes.append(json.loads(message.payload)["outcome"])
        ended = bool(zygote.exits())
    reader.close()
    if outcomes != ["passed"]:
        raise RuntimeError(f"{outcomes}: {(root / 'log').read_text()}")
    return time.perf_counter() - start


def main() -> None:
    """Make a project, measure in a session of its own, print."""
    requests = sys.argv[1] if len(sys.argv) > 1 else "7"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("artifact", "candidate"):
            (root / name).mkdir()
            (root / name / "prompt.txt").write_text("brief")
        (root / "test_suite.py").write_text(SUITE)
        result = root / "result.json"
        here = Path(__file__)
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", here.stem, "test_suite.py"],
            cwd=root,
            check=True,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "PYTHONPATH": str(here.parent),
                _REQUESTS: requests,
                _RESULT: str(result),
            },
        )
        _show(json.loads(result.read_text()))


def _show(measured: dict[str, Any]) -> None:
    cold = statistics.median(measured["cold"])
    fresh = statistics.median(measured["fresh"])
    print(f"parent ready after     {measured['ready']:8.3f} s (once per worker)")
    print(f"new interpreter        {cold:8.3f} s a request (median)")
    print(f"fresh by the parent    {fresh:8.3f} s a request (median)")
    print(f"ratio                  {fresh / cold:8.3f} (promised: at most 0.200)")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the session that is measured, and in no child of it."""
    if _RESULT in os.environ and Path(sys.argv[0]).name == "__main__.py":
        config.pluginmanager.register(_Bench())


if __name__ == "__main__":
    main()
