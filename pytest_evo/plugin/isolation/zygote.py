"""The program of the zygote: ``python zygote.py DESCRIPTOR``.

Started as a file, so that nothing of the package is loaded before pytest's import hook
is in place: what is imported without it could not be rewritten any more, and pytest
would warn of it in every child.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PARTS = ("fresh", "freshrun", "installed")


def main(descriptor: int) -> None:
    """Import what the spec names, then fork a child for every task."""
    package = Path(__file__).parents[3]
    pristine = [path for path in sys.path if path != str(Path(__file__).parent)]
    sys.path[:] = [*pristine, str(package)]
    with _rewriting() as hook:
        hook.mark_rewrite("pytest_evo")
        fresh, freshrun, installed = (_ours(name) for name in _PARTS)
        line = fresh.Line(socket.socket(fileno=descriptor))
        spec, _ = line.receive()
        prefixes = installed.installed_prefixes()
        sys.path[:] = [
            path
            for path in sys.path
            if f"{path}/".startswith(prefixes) or not _inside(path, spec.rootdir)
        ]
        hook.mark_rewrite(*spec.rewritten)
        own = frozenset(sys.modules)  # a second pytest would be another pytest
        _preload(spec.modules)
    installed.forget_foreign(prefixes, own)
    sys.path[:] = [*spec.leading_path, *pristine]
    sys.argv[:] = spec.argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    line.send(("ready", *_threads()))
    _Loop(line, spec, freshrun.run_task).serve()


def _ours(name: str) -> Any:
    return importlib.import_module(f"pytest_evo.plugin.isolation.{name}")


@contextlib.contextmanager
def _rewriting() -> Iterator[Any]:
    """Pytest's import hook, for a while."""
    from _pytest.assertion import install_importhook
    from _pytest.config import get_config

    hook = install_importhook(get_config())
    try:
        yield hook
    finally:
        sys.meta_path.remove(hook)


def _inside(path: str, folder: str) -> bool:
    return Path(path).resolve().is_relative_to(Path(folder).resolve())


def _preload(names: Iterable[str]) -> list[str]:
    """Import what loads without the project; the rest is left to the children.

    Returns what did not load. A package may raise errors of its own kind, as Django
    does before it is configured, or end the interpreter: no list of types has them all.
    """
    left = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                importlib.import_module(name)
            except (Exception, SystemExit):  # noqa: BLE001 - raised again in a child
                left.append(name)
    return left


def _threads() -> list[str]:
    """Threads that the packages have started; they do not exist in children."""
    main_thread = threading.main_thread()
    return [one.name for one in threading.enumerate() if one is not main_thread]


class _Loop:
    """Forks for tasks, tells of ends, until the worker hangs up."""

    def __init__(self, line: Any, spec: Any, run_task: Any) -> None:
        self._line = line
        self._spec = spec
        self._run_task = run_task
        self._children: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Work until the other end of the line is closed."""
        self._selector.register(self._line, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fd == self._wake:
                        self._reap()
                    else:
                        self._start(*self._line.receive())
        except OSError:  # the worker is gone or done
            for pid in self._children:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._children.discard(pid)
                self._line.send(("exit", pid, status))

    def _start(self, task: Any, frames: int) -> None:
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of packages
            pid = os.fork()
        if pid == 0:
            self._line.close()
            self._selector.close()
            os.close(self._wake)
            os.close(self._waker)
            self._run_task(task, self._spec, frames, parent)
        os.close(frames)
        self._children.add(pid)
        self._line.send(("forked", pid))


if __name__ == "__main__":
    main(int(sys.argv[1]))
