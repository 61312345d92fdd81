"""Observed reach: what a rollout really opened or imported, by audit hook.

The hook only notes strings; paths are resolved when a window ends. It cannot see
stat, exists, realpath, a second import of a module or what native code opens, so a
window in which such code may have read something is not ``exact``.
"""

# The hook runs inside other code's reads: strings cost least.
# ruff: noqa: PTH109, PTH115, PTH118

from __future__ import annotations

import os
import resource
import sys
import sysconfig
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from functools import cache
from pathlib import Path
from pathlib import PurePath
from types import FrameType
from typing import Any

import _pytest

from pytest_evo.models import Reach
from pytest_evo.plugin.isolation.installed import attribute
from pytest_evo.plugin.isolation.paths import below
from pytest_evo.plugin.isolation.paths import is_foreign_folder
from pytest_evo.plugin.isolation.paths import Resolver
from pytest_evo.plugin.isolation.paths import source_of


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read between ``begin`` and ``end``."""

    reach: Reach
    project_files: tuple[str, ...] = ()  # relative to the project, POSIX


@dataclass(slots=True)
class _Notes:
    reads: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)  # made here: no dependence
    changed: set[str] = field(default_factory=set)  # written, made, moved or removed
    exact: bool = True
    network: bool = False
    processes: bool = False


_Where = tuple[Path, Path, Path, bool]
_TRUNCATING = os.O_TRUNC | os.O_EXCL
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_IMPORTLIB = "<frozen importlib._bootstrap_external>"
_RMTREE = frozenset({"rmtree", "_rmtree_safe_fd", "_rmtree_safe_fd_step"})
_LISTERS = (
    f"{Path(_pytest.__file__).parent}{os.sep}",
    f"{Path(os.__file__).parent / 'importlib' / 'metadata'}{os.sep}",
)
_STDLIB = tuple(
    f"{path}{os.sep}"
    for given in [Path(sysconfig.get_path("stdlib"))]
    for path in (given, given.resolve())
)


class Recorder:
    """The window on the process's one audit hook; get it with ``recorder()``."""

    def __init__(self) -> None:
        self._notes: _Notes | None = None
        self._carried = _Notes()
        self._where: _Where | None = None
        self._children = (0, False)
        self._foreign = _foreign_prefixes(Path.cwd())
        opened, listed, started = self._on_open, self._on_list, self._on_process
        talked, native, changed = self._on_network, self._on_native, self._on_change
        self._handlers: dict[str, Callable[[_Notes, tuple[Any, ...]], None]] = {
            "open": opened,
            "os.listdir": listed,
            "os.scandir": listed,
            "os.rename": self._on_rename,
            "os.remove": changed,
            "os.mkdir": changed,
            "os.rmdir": changed,
            "os.link": changed,
            "os.symlink": changed,
            "os.truncate": changed,
            "os.chmod": changed,
            "shutil.rmtree": changed,
            "import": self._on_import,
            "ctypes.dlopen": native,
            "sqlite3.connect": native,
            "subprocess.Popen": started,
            "os.exec": started,
            "os.posix_spawn": started,
            "os.spawn": started,
            "os.fork": started,
            "os.forkpty": started,
            "os.system": started,
            "pty.spawn": started,
            "socket.connect": talked,
            "socket.getaddrinfo": talked,
            "socket.gethostbyname": talked,
            "socket.gethostbyaddr": talked,
            "socket.sendto": talked,
            "socket.sendmsg": talked,
        }

    # -- windows -------------------------------------------------------------------

    def listen(self) -> None:
        """Start noting reads before the paths are known (collection).

        Where something is being noted already, that goes on: a fresh process knows the
        paths before its session starts.
        """
        if self._notes is not None:
            return
        self._where = None
        self._carried = _Notes()
        self._children = _children()
        self._notes = self._carried

    def begin(
        self, real: Path, candidate: Path, project: Path, *, mounted: bool = False
    ) -> None:
        """Start noting; ``candidate == real`` where it runs in place or mounted.

        What earlier windows of the same process and candidate saw stays part of the
        reach: fixtures and caches keep it alive.
        """
        where = (real, candidate, project, mounted)
        if where != self._where:
            self._where = where
            self._carried = _Notes()
            self._foreign = _foreign_prefixes(real, candidate, project)
        self._children = _children()
        self._notes = self._carried

    def end(self) -> Seen:
        """Stop noting and say what was seen since ``begin``."""
        if self._where is None:
            raise RuntimeError("Recorder.end() without begin()")
        notes = self._stop()
        return _seen(notes, *self._where)

    def end_collection(self, artifact: Path, project: Path) -> Seen:
        """Stop what ``listen`` started; modules loaded before it count too."""
        notes = self._stop()
        for module in list(sys.modules.values()):
            origin = attribute(module, "__file__")
            if isinstance(origin, str) and not origin.startswith(self._foreign):
                notes.reads.add(origin)
        self._carried = _Notes()
        return _seen(notes, artifact, artifact, project, True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not note what happens inside: the plugin's own reads."""
        notes, self._notes = self._notes, None
        try:
            yield
        finally:
            self._notes = notes

    def dismiss(self) -> None:
        """Forget all and note nothing more: no test will run in this process.

        The controller of a long run opens files without end.
        """
        self._notes = None
        self._carried = _Notes()

    def _stop(self) -> _Notes:
        self._notes = None
        if _children() != self._children:
            self._carried.processes = True
            self._carried.exact = False
        return self._carried

    def wrote(self) -> bool:
        """Whether the candidate's files were changed in this window, as far as seen."""
        if self._where is None:
            return False
        real, candidate, _, _ = self._where
        resolver = Resolver()
        return any(
            resolver.names(path, root)
            for path in self._carried.changed
            for root in (candidate, real)
            if "__pycache__" not in path
        )

    # -- events --------------------------------------------------------------------

    def install(self) -> None:
        """Add the hook; it stays for the life of the process.

        It is a plain function with its names at hand: every audited call runs it. It
        must not raise, that would fail the audited call.
        """
        handler_of = self._handlers.get

        def note(event: str, args: tuple[Any, ...]) -> None:
            handler = handler_of(event)
            if handler is not None:
                notes = self._notes
                if notes is not None:
                    handler(notes, args)

        sys.addaudithook(note)

    def _on_open(self, notes: _Notes, args: tuple[Any, ...]) -> None:
        given, mode, flags = args
        path = _text(given)
        if path is None or path.startswith(self._foreign):
            return
        if not path.startswith(os.sep):
            if mode is None:  # os.open: perhaps relative to a descriptor
                if _removes_tree(sys._getframe(2)):
                    return
                notes.exact = False
            path = _absolute(path)
        flags = flags if isinstance(flags, int) else 0
        if flags & _WRITING:
            notes.changed.add(path)
        if flags & _TRUNCATING:
            if path not in notes.reads:
                notes.fresh.add(path)
        elif flags & _ACCESS != os.O_WRONLY and not _shows_source(sys._getframe(2)):
            notes.reads.add(path)

    def _on_list(self, notes: _Notes, args: tuple[Any, ...]) -> None:
        frame = sys._getframe(2)
        code = frame.f_code
        if code.co_filename == _IMPORTLIB or code.co_filename.startswith(_LISTERS):
            return
        if _removes_tree(frame):
            return
        given = args[0]
        path = _descriptor(given) if isinstance(given, int) else _text(given or ".")
        if path is None:
            notes.exact = False
        elif not path.startswith(self._foreign):
            notes.lists.add(_absolute(path))

    def _on_rename(self, notes: _Notes, args: tuple[Any, ...]) -> None:
        source, target = _text(args[0]), _text(args[1])
        if source is None or target is None:
            return
        notes.changed.update((_absolute(source), _absolute(target)))
        if _absolute(source) in notes.fresh and _absolute(target) not in notes.reads:
            notes.fresh.add(_absolute(target))

    def _on_change(self, notes: _Notes, args: tuple[Any, ...]) -> None:
        for given in args[:2]:
            path = _text(given)
            if path is not None and not path.startswith(self._foreign):
                notes.changed.add(_absolute(path))

    def _on_import(self, notes: _Notes, args: tuple[Any, ...]) -> None:
        path = _text(args[1])
        if path is None or (path.startswith(_STDLIB) and "lib-dynload" in path):
            return
        notes.exact = False  # an extension module that loads late may read natively
        if not path.startswith(self._foreign):
            notes.reads.add(_absolute(path))

    def _on_native(self, notes: _Notes, args: tuple[Any, ...]) -> None:
        notes.exact = False
        path = _text(args[0])
        if path and os.sep in path and not path.startswith(self._foreign):
            notes.reads.add(_absolute(path))

    def _on_process(self, notes: _Notes, _args: tuple[Any, ...]) -> None:
        notes.exact = False
        notes.processes = True

    def _on_network(self, notes: _Notes, _args: tuple[Any, ...]) -> None:
        notes.network = True


@cache
def recorder() -> Recorder:
    """The recorder of this process; the first call installs the hook."""
    made = Recorder()
    made.install()
    return made


def _text(given: object) -> str | None:
    if isinstance(given, str):
        return given
    if isinstance(given, PurePath):
        return os.fspath(given)
    return os.fsdecode(given) if isinstance(given, bytes) else None


def _absolute(path: str) -> str:
    if path.startswith(os.sep):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError:  # the working directory was removed
        return os.sep


def _descriptor(number: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return None


def _removes_tree(frame: FrameType | None) -> bool:
    """Whether the caller is ``shutil.rmtree``, which opens and lists only to remove."""
    if frame is None or frame.f_code.co_name not in _RMTREE:
        return False
    return frame.f_globals.get("__name__") == "shutil"


def _shows_source(frame: FrameType | None) -> bool:
    """Whether a source file is read only to show lines of it in a traceback."""
    while frame is not None and frame.f_globals.get("__name__") == "tokenize":
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "linecache"


def _children() -> tuple[int, bool]:
    """What tells of child processes that no audit event tells of."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    if not hasattr(os, "waitid"):
        return reaped, False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return reaped, False
    return reaped, True


def _foreign_prefixes(*ours: Path) -> tuple[str, ...]:
    """Folders that cannot hold the artifact or the project: skipped at once."""
    mine = [f"{path}{os.sep}" for path in ours]
    return tuple(
        prefix
        for prefix in (*_library_prefixes(), "/proc/", "/dev/", "/sys/")
        if not any(path.startswith(prefix) for path in mine)
    )


@cache
def _library_prefixes() -> tuple[str, ...]:
    """Folders of libraries; looked up before the first fork, not in every child."""
    paths = sysconfig.get_paths()
    names = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    prefixes = {f"{name}{os.sep}" for name in names}
    return tuple(
        sorted(prefixes | {f"{Path(name).resolve()}{os.sep}" for name in names})
    )


def _seen(
    notes: _Notes, real: Path, candidate: Path, project: Path, mounted: bool
) -> Seen:
    resolver = Resolver()
    mine, stale, others = set[str](), set[str](), set[str]()
    roots = [(candidate, mine), (real, mine if mounted or candidate == real else stale)]
    for raw, listed in [
        *((path, False) for path in notes.reads - notes.fresh),
        *((path, True) for path in notes.lists),
    ]:
        path = source_of(raw)
        for root, names in roots:
            if found := resolver.names(path, root, folder=listed):
                names.update(found)
                break
        else:
            if not listed:
                others.add(resolver.real(path))
    return Seen(
        Reach(
            files=tuple(sorted(mine)),
            exact=notes.exact,
            network=notes.network,
            processes=notes.processes,
            stale=tuple(sorted(stale)),
        ),
        tuple(sorted(_project_files(others, project))) if others else (),
    )


def _project_files(paths: set[str], project: Path) -> Iterator[str]:
    top = os.path.realpath(project)
    for path in paths:
        name = below(path, top)
        if name and Path(path).is_file() and not is_foreign_folder(top, name):
            yield name.replace(os.sep, "/")
