"""A private mount: the candidate at the artifact's real path, for one process."""

# Single steps of a sequence that is run in a fresh child: plain calls.
# ruff: noqa: PTH101, PTH102, PTH108, PTH109, PTH112, PTH114, PTH115, PTH118
# ruff: noqa: PTH100, PTH106, PTH116, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import ctypes
import gc
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from pytest_evo.plugin.isolation import listings
from pytest_evo.plugin.isolation.candidates import quiet_bytecode
from pytest_evo.plugin.isolation.paths import below
from pytest_evo.plugin.isolation.paths import real
from pytest_evo.plugin.isolation.paths import real_name
from pytest_evo.plugin.isolation.shield import libc
from pytest_evo.plugin.isolation.shield import raise_shield
from pytest_evo.plugin.isolation.shield import Shield

_NEWNS = 0x00020000
_NEWUSER = 0x10000000
_BIND = 0x1000
_REC = 0x4000
_PRIVATE = 0x40000
_NOSUID_NODEV = 0x2 | 0x4
_DETACH = 2
_CAPABILITIES_3 = 0x20080522


class MountRefused(OSError):
    """The candidate cannot be mounted; the message says why."""


def probe(artifact: Path, files: Sequence[str] = ()) -> str | None:
    """Try the whole sequence in a child; None if it works, else why not (cached).

    Raises:
        OSError: no temporary folder or no process can be made here.
    """
    if sys.platform != "linux":
        return f"a private mount needs Linux, this is {sys.platform}"
    return _probe(os.path.realpath(artifact), tuple(files))


@cache
def _probe(artifact: str, files: tuple[str, ...]) -> str | None:
    with tempfile.TemporaryDirectory(prefix="evo-probe-") as folder:
        name = f"probe-{os.urandom(8).hex()}"
        Path(folder, name).write_text(name)
        Path(folder).chmod(0o755)

        def attempt() -> None:
            enter(Path(folder), Path(artifact), files)
            if Path(artifact, name).read_text() != name:
                raise MountRefused("the mounted directory reads as something else")
            if any(os.path.lexists(f"{artifact}/{file}") for file in files):
                raise MountRefused("a hidden file is still seen")

        problem = _in_child(attempt)
    if problem is None and os.path.lexists(f"{artifact}/{name}"):
        return "the mount was seen outside of its own process"
    return problem


@cache
def freezes() -> bool:
    """Whether a shield really makes files read-only here; tried once, in a child.

    Raises:
        OSError: no temporary folder or no process can be made here.
    """
    with tempfile.TemporaryDirectory(prefix="evo-probe-") as folder:
        top = Path(folder)
        place, copy, file = top / "artifact", top / "copy", top / "file"
        place.mkdir()
        copy.mkdir()
        file.touch()

        def attempt() -> None:
            enter(copy, place, (), Shield(read_only=(str(file),)))
            for act in (file.unlink, lambda: file.write_text("changed")):
                try:
                    act()
                except OSError:
                    continue
                raise MountRefused("a frozen file was changed")

        return _in_child(attempt) is None


def _in_child(action: Callable[[], None]) -> str | None:
    """Run an action in a forked child; the text of its OSError, None if it worked."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads: we only mount
        pid = os.fork()
    if pid == 0:
        _report(action, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(pid, 0)[1]
    if status != 0 or not answer:
        return f"the process that tried it ended with status {status}"
    text = answer.decode(errors="replace")
    return None if text == "ok" else text


def _report(action: Callable[[], None], writing: int) -> None:
    gc.disable()
    answer = "ended without an answer"
    try:
        action()
        answer = "ok"
    except OSError as error:
        answer = str(error)
    finally:
        os.write(writing, answer.encode()[:4000])
        os._exit(0)


def open_descriptors(artifact: Path) -> list[str]:
    """Paths below the artifact that this process holds open.

    A child would go on reading the project's own files through them.
    """
    top = os.path.realpath(artifact)
    found: list[str] = []
    for number in _listed("/proc/self/fd"):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{number}")
            if below(path, top) is not None:
                found.append(path)
    return sorted(found)


def enter(
    candidate_copy: Path,
    artifact: Path,
    files: Sequence[str] = (),
    shield: Shield | None = None,
) -> None:
    """Show the candidate's copy at the artifact's path, in this process only.

    For a single-threaded forked child. ``files`` are the names that ``include``
    selects in the project's own artifact: only they are replaced, one by one; those
    that the copy lacks are hidden, those that it adds appear. Without ``files`` the
    whole directory is replaced. ``shield`` keeps other files from this process.

    Raises:
        MountRefused: a step failed; nothing outside this process has changed.
    """
    copy = real_name(os.fspath(candidate_copy))
    top = real(os.fspath(artifact))
    where = _working_directory()
    if not os.path.isdir(top):
        raise MountRefused(f"{top} is no directory")
    if not files and below(copy, top) is not None:
        raise MountRefused(f"the candidate's copy {copy} lies inside the artifact")
    quiet_bytecode()
    mapped = _leave_namespace()
    if files:
        _mount_files(copy, top, files)
    else:
        _mount(copy, top, _BIND)
    if sys.pycache_prefix:
        _cover(f"{os.path.abspath(sys.pycache_prefix)}{top}")
    if shield is not None:
        raise_shield(shield.without((top, where)))
    if mapped and os.geteuid() != 0:
        _drop_capabilities()
    try:
        os.chdir(where)
    except OSError as error:
        raise MountRefused(
            f"the candidate lacks the working directory {where}"
        ) from error
    listings.forget(top)


def prepare(candidate_copy: Path, artifact: Path) -> None:
    """Look up what every child would look up again; for the process that forks."""
    real_name(os.fspath(candidate_copy))
    listings.look(real(os.fspath(artifact)))
    libc()


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise MountRefused("the working directory is gone") from error


# -- the kernel ----------------------------------------------------------------------


def _call(what: str, name: str, *args: object) -> None:
    function = getattr(libc(), name, None)
    if function is None:
        raise MountRefused(f"{what}: the C library has no {name}()")
    if function(*args) != 0:
        number = ctypes.get_errno()
        raise MountRefused(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, flags: int, kind: str = "") -> None:
    name = kind or source
    _call(
        f"mounting {name} at {target}",
        "mount",
        os.fsencode(name),
        os.fsencode(target),
        os.fsencode(kind) if kind else None,
        ctypes.c_ulong(flags),
        None,
    )


def _leave_namespace() -> bool:
    """Get a mount namespace of one's own; True if that took a user namespace."""
    mapped = False
    user, group = os.geteuid(), os.getegid()
    try:
        _call("leaving the mount namespace", "unshare", _NEWNS)
    except MountRefused:
        _call("making a user namespace", "unshare", _NEWNS | _NEWUSER)
        mapped = True
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        except OSError as error:
            raise MountRefused(f"mapping the user: {error}") from error
    _call(
        "making mounts private",
        "mount",
        None,
        b"/",
        None,
        ctypes.c_ulong(_REC | _PRIVATE),
        None,
    )
    return mapped


def _drop_capabilities() -> None:
    """Give back what the user namespace gave, so that file modes still bind."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _call("dropping capabilities", "capset", header, data)


# -- include: files one by one -------------------------------------------------------


def _mount_files(copy: str, top: str, files: Sequence[str]) -> None:
    own = set(files)
    names = list(_names(copy))
    wanted = {name for name in names if not name.endswith("/")}
    linked = {
        name
        for name in wanted
        if os.path.islink(f"{copy}/{name}") or os.path.islink(f"{top}/{name}")
    }
    staging = tempfile.mkdtemp(prefix="evo-stage-")
    _mount(top, staging, _BIND | _REC)
    new = {name.rstrip("/") for name in names if name.endswith("/")}
    _rebuild(staging, top, new, own ^ wanted | linked)
    for name in sorted((own - wanted) | linked):
        _hide(f"{top}/{name}")
    for name in sorted(wanted):
        _show(f"{copy}/{name}", f"{top}/{name}")
    for folder in sorted({os.path.dirname(name) for name in wanted}):
        _cover(os.path.join(top, folder, "__pycache__"))  # it is of other files
    _call("leaving the staging mount", "umount2", os.fsencode(staging), _DETACH)
    os.rmdir(staging)


def _names(top: str, prefix: str = "") -> Iterable[str]:
    with os.scandir(f"{top}/{prefix}") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield f"{prefix}{entry.name}/"
                yield from _names(top, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name


def _rebuild(staging: str, top: str, folders: set[str], changed: set[str]) -> None:
    """Rebuild in memory every folder whose list of names changes, outer ones first."""
    new = {folder for folder in folders if not os.path.isdir(f"{top}/{folder}")}
    places = {os.path.dirname(name) for name in changed | new} - new
    for folder in sorted(places, key=lambda name: name.split("/")):
        source = f"{staging}/{folder}".rstrip("/")
        target = f"{top}/{folder}".rstrip("/")
        if os.path.islink(target) or not os.path.isdir(source):
            raise MountRefused(f"{target} is no directory of the project's own")
        status = os.stat(source)
        _mount("none", target, _NOSUID_NODEV, "tmpfs")
        for entry in sorted(os.listdir(source)):
            _bring(f"{source}/{entry}", f"{target}/{entry}")
        os.chmod(target, stat.S_IMODE(status.st_mode))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    for folder in sorted(new, key=lambda name: name.split("/")):
        os.mkdir(f"{top}/{folder}", 0o755)


def _bring(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        os.mkdir(target)
        _mount(source, target, _BIND | _REC)
    else:
        _touch(target)
        _mount(source, target, _BIND)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _hide(target: str) -> None:
    """Take a name out of a rebuilt folder."""
    if not os.path.lexists(target):
        return
    if not os.path.islink(target):
        _call(f"hiding {target}", "umount2", os.fsencode(target), _DETACH)
    os.unlink(target)


def _show(source: str, target: str) -> None:
    """Bind one file, or make a link in its rebuilt folder."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if not os.path.lexists(target):
        _touch(target)
    _mount(source, target, _BIND)


def _cover(folder: str) -> None:
    """Lay an empty folder in memory over one that exists."""
    if os.path.isdir(folder):
        _mount("none", folder, _NOSUID_NODEV, "tmpfs")


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


if __name__ == "__main__":  # pytest-evo doctor: why it cannot be, nothing if it can
    print(probe(Path(sys.argv[1])) or "")  # noqa: T201
