"""One agent at work on one proposal: what it is given, and what became of it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.trees import changes
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.hostile import visible
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Tree
from pytest_evo.models import Usage
from pytest_evo.proposers.agent.boxes import Box
from pytest_evo.proposers.agent.boxes import HOME
from pytest_evo.proposers.agent.gateway import Gateway
from pytest_evo.proposers.agent.gateway_forward import Call
from pytest_evo.proposers.agent.gateway_forward import Upstream
from pytest_evo.proposers.agent.gateway_meter import Allowance
from pytest_evo.proposers.agent.gateway_meter import Meter
from pytest_evo.proposers.agent.listening import Hearing
from pytest_evo.proposers.agent.outside import changed
from pytest_evo.proposers.agent.outside import look
from pytest_evo.proposers.agent.outside import Watched
from pytest_evo.proposers.agent.presets import Command
from pytest_evo.proposers.agent.presets import Job
from pytest_evo.proposers.agent.presets import PROMPT_FILE
from pytest_evo.proposers.agent.presets import Speech
from pytest_evo.proposers.agent.presets import TRAJECTORY_FILE
from pytest_evo.proposers.agent.programs import Places
from pytest_evo.proposers.agent.prompt import write_prompt
from pytest_evo.proposers.agent.running import Ended
from pytest_evo.proposers.agent.running import run
from pytest_evo.proposers.agent.sandbox import PORT
from pytest_evo.proposers.agent.sandbox import Sandbox
from pytest_evo.proposers.agent.sandbox import WORKSPACE
from pytest_evo.protocols import ProposalRequest
from pytest_evo.tabs import current_tab

_GRACE_SECONDS = 5.0  # for an agent to end by itself when the budget is used up
_KEPT = 100_000  # characters of output, at each end
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent that is there.

    ``places.program`` is run; ``shown`` is readable in the sandbox as well.
    """

    name: str
    build: Callable[[Job], Command]
    places: Places
    speech: Speech = Speech.EVENTS
    shown: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """What every agent of a run works under.

    Args:
        template: of the prompt.
        environment: what goes through from outside.
        sandbox: None: without one.
        upstream: the provider; None: the agent reaches a model by itself, or none.
        model: by the provider's name.
        network: whether the sandbox has the machine's.
        seconds: for one proposal.
        project: that an agent without a sandbox must leave as it is.
    """

    template: str
    environment: Mapping[str, str]
    sandbox: Sandbox | None = None
    upstream: Upstream | None = None
    model: str | None = None
    network: bool = False
    seconds: float = 1200.0
    project: Path | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent did."""

    ended: Ended
    hearing: Hearing
    prompt: str
    output: str
    changed: tuple[tuple[str, str], ...] | None  # None: the files cannot be read
    usage: Usage = NO_USAGE
    calls: tuple[Call, ...] = ()
    guessed: int = 0
    spent: str | None = None
    strayed: tuple[str, ...] = ()  # files of the project that it changed


class Output:
    """The two ends of what an agent printed."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._sizes = [0, 0]
        self._missing = 0

    def add(self, line: str) -> None:
        """Take a line."""
        line = line[:_KEPT]
        if self._sizes[0] + len(line) < _KEPT:
            self._head.append(line)
            self._sizes[0] += len(line) + 1
            return
        self._tail.append(line)
        self._sizes[1] += len(line) + 1
        while self._sizes[1] > _KEPT:
            self._sizes[1] -= len(self._tail.popleft()) + 1
            self._missing += 1

    def text(self) -> str:
        """What is kept, with everything in it visible."""
        lines = [*self._head]
        if self._missing:
            lines.append(f"[... {self._missing} lines left out ...]")
        return visible("\n".join([*lines, *self._tail])) + "\n"


def _at(call: Call) -> float:
    return call.at


class Session:
    """One agent, one request, one throw-away home.

    ``closing`` is asked several times a second whether the run ends.
    """

    def __init__(
        self,
        agent: Agent,
        conditions: Conditions,
        meter: Meter,
        request: ProposalRequest,
        box: Box,
        closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._agent = agent
        self._conditions = conditions
        self._meter = meter
        self._request = request
        self._box = box
        self._closing = closing
        self._folder = request.workspace / "artifact"
        self._spent_at = 0.0

    def work(self) -> Work:
        """Have the agent work to its end; blocks."""
        before = self._tree()
        watched = self._watch()
        files = tuple(
            entry.path
            for entry in (before.entries if before else ())
            if entry.kind == "file"
        )
        prompt = write_prompt(self._conditions.template, self._request, files)
        request = self._request
        allowance = self._meter.open(request.tokens_left, request.usd_left)
        hearing, output, tab = Hearing(), Output(), current_tab()
        allowance.on_change = tab.changed

        def heard(line: str, aside: bool) -> None:
            output.add(line)
            before = hearing.usage
            hearing.hear(line, aside)
            if hearing.usage != before:
                tab.changed()

        with ExitStack() as stack:
            gateway = self._gateway(allowance)
            if gateway is not None:
                stack.enter_context(gateway)
                tab.watch(allowance.so_far)
            else:
                tab.watch(lambda: self._told_usage(hearing))
            job = self._job(prompt, files, gateway)
            ended = self._run(job, allowance, heard)
        usage = self._meter.close(allowance)
        if self._conditions.sandbox is not None:
            ended = replace(ended, left=0)  # it may see the sandbox go
        if self._agent.speech is Speech.TRAJECTORY:
            hearing.read_trajectory(self._box.home / TRAJECTORY_FILE)
        if gateway is None:
            usage = self._told_usage(hearing)
        return Work(
            ended=ended,
            hearing=hearing,
            prompt=prompt,
            output=output.text(),
            changed=self._changes(before),
            usage=usage,
            calls=tuple(sorted(gateway.calls, key=_at)) if gateway is not None else (),
            guessed=allowance.guessed,
            spent=allowance.spent,
            strayed=changed(watched, self._watch()),
        )

    # -- before ------------------------------------------------------------------------

    def _gateway(self, allowance: Allowance) -> Gateway | None:
        conditions = self._conditions
        if conditions.upstream is None:
            return None
        at = self._box.socket if self._relays else None
        return Gateway(conditions.upstream, allowance, model=conditions.model, at=at)

    @property
    def _relays(self) -> bool:
        """Whether the gateway is reached through a socket, for want of a network."""
        return self._conditions.sandbox is not None and not self._conditions.network

    def _job(self, prompt: str, files: tuple[str, ...], gateway: Gateway | None) -> Job:
        inside = self._conditions.sandbox is not None
        root = ""
        if gateway is not None:
            root = f"http://127.0.0.1:{PORT if self._relays else gateway.port}"
        return Job(
            workspace=WORKSPACE if inside else str(self._request.workspace),
            home=HOME if inside else str(self._box.home),
            prompt=prompt,
            model=self._conditions.model,
            root=root,
            token=gateway.token if gateway is not None else "",
            files=tuple(f"artifact/{name}" for name in files),
        )

    def _write(self, command: Command, prompt: str) -> None:
        for name, text in {PROMPT_FILE: prompt, **command.files}.items():
            path = self._box.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def _environment(self, job: Job, command: Command) -> dict[str, str]:
        inside = self._conditions.sandbox is not None
        known = {
            "HOME": job.home,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": "/tmp" if inside else str(self._box.temporary),
            "USER": "agent",
        }
        environment = {**known, **self._conditions.environment, **command.environment}
        if inside:
            folders = (str(path) for path in self._agent.places.folders)
            environment["PATH"] = os.pathsep.join(
                dict.fromkeys((*folders, *_SYSTEM_PATH))
            )
        return environment

    # -- the run -----------------------------------------------------------------------

    def _run(
        self, job: Job, allowance: Allowance, heard: Callable[[str, bool], None]
    ) -> Ended:
        command = self._agent.build(job)
        self._write(command, job.prompt)
        environment = self._environment(job, command)
        words = [str(self._agent.places.program), *command.words[1:]]
        conditions = self._conditions
        if conditions.sandbox is not None:
            words = conditions.sandbox.wrap(
                words,
                self._box,
                self._request.workspace,
                shown=(*self._agent.places.shown, *self._agent.shown),
                network=conditions.network,
                relay=self._relays and conditions.upstream is not None,
            )
        return run(
            words,
            folder=self._request.workspace,
            environment=environment,
            stdin=self._box.home / PROMPT_FILE if command.stdin else None,
            seconds=conditions.seconds,
            heard=heard,
            stop=lambda: self._is_over(allowance),
        )

    def _is_over(self, allowance: Allowance) -> bool:
        """Whether the run ends, or its budget did and nothing will come any more."""
        if self._closing():
            return True
        if allowance.spent is None:
            return False
        now = time.monotonic()
        self._spent_at = self._spent_at or now
        return now - self._spent_at > _GRACE_SECONDS

    # -- after -------------------------------------------------------------------------

    def _told_usage(self, hearing: Hearing) -> Usage:
        """What the agent says that it used; unknown where it could and says nothing."""
        if hearing.usage is not None:
            return hearing.usage
        return NO_USAGE if self._relays else Usage(usd=None)

    def _watch(self) -> Watched:
        project = self._conditions.project
        if project is None or self._conditions.sandbox is not None:
            return {}
        return look(project)

    def _tree(self) -> Tree | None:
        if self._folder.is_symlink() or not self._folder.is_dir():
            return None
        schema = self._request.schema
        try:
            return snapshot(
                self._folder,
                MemoryBlobs(),
                max_bytes=schema.max_bytes,
                max_files=schema.max_files,
            )
        except (ArtifactProblem, OSError):
            return None

    def _changes(self, before: Tree | None) -> tuple[tuple[str, str], ...] | None:
        after = self._tree()
        if before is None or after is None:
            return None
        return tuple(changes(before, after))
