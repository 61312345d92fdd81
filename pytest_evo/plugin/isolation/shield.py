"""What a rollout may not write or see, made so by mounts of its own.

Only for a process that has left the mount namespace (``mount.enter``). Every step is
best effort: what a kernel refuses here is still found out afterwards by ``protected``.
"""

# Single steps of a sequence that is run in a fresh child: plain calls.
# ruff: noqa: PTH110, PTH112, PTH114

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from pytest_evo.plugin.isolation.paths import below

_READ_ONLY = 0x1
_REMOUNT = 0x20
_BIND = 0x1000
_NOSUID_NODEV = 0x2 | 0x4
# of statvfs to those of mount; a remount that drops one of them is refused
_FLAGS = (
    (os.ST_NOSUID, 0x2),
    (getattr(os, "ST_NODEV", 4), 0x4),
    (getattr(os, "ST_NOEXEC", 8), 0x8),
    (getattr(os, "ST_NOATIME", 1024), 0x400),
    (getattr(os, "ST_NODIRATIME", 2048), 0x800),
    (getattr(os, "ST_RELATIME", 4096), 0x200000),
)
_PR_CAPBSET_DROP = 24
_CAPABILITIES_3 = 0x20080522
_SYS_PTRACE = 19
_SYS_ADMIN = 21
_PERFMON = 38  # it opens the memory of other processes too
_CALLED = ("capget", "capset", "mount", "prctl", "syscall", "umount2", "unshare")
_LANDLOCK_CREATE = 444
_LANDLOCK_RESTRICT = 446
_LANDLOCK_MACHINES = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le", "s390x"})
_SCOPE_SIGNAL = 1 << 1
# a type of an array is made anew each time that it is spelled out
_RULES = ctypes.c_uint64 * 3
_HEADER = ctypes.c_uint32 * 2
_DATA = ctypes.c_uint32 * 6
MOST_FROZEN = 64
"""Files at most: each costs a rollout about 0.01 to 0.1 ms."""


@dataclass(frozen=True, slots=True)
class Shield:
    """Absolute paths; those that do not exist are skipped."""

    read_only: tuple[str, ...] = ()  # files and folders
    hidden: tuple[str, ...] = ()  # folders that look empty

    def without(self, needed: Iterable[str]) -> Shield:
        """The same, less folders that would hide or freeze what is needed."""
        kept = tuple(needed)

        def spares(folder: str) -> bool:
            return all(below(path, folder) is None for path in kept)

        return Shield(
            tuple(filter(spares, self.read_only)), tuple(filter(spares, self.hidden))
        )


def raise_shield(shield: Shield) -> None:
    """Make folders look empty and files read-only, in this process and what it starts.

    As root, the rights to undo that and to look into other processes are given up.
    From Linux 6.12 on, no signal reaches a process outside.
    """
    for path in shield.read_only:
        with suppress(OSError):
            _freeze(path)
    for path in shield.hidden:
        if os.path.isdir(path):
            with suppress(OSError):
                _mount("none", path, _NOSUID_NODEV | _READ_ONLY, "tmpfs")
    keep_signals()
    if os.geteuid() == 0:
        with suppress(OSError):
            _give_up((_SYS_ADMIN, _SYS_PTRACE, _PERFMON))


def keep_signals() -> None:
    """Enter a landlock domain: signals to, and looks into, others are refused.

    What is outside may still signal and look in. Nothing else is restricted. Where the
    kernel or missing rights do not allow it nothing happens.
    """
    if sys.platform != "linux" or os.uname().machine not in _LANDLOCK_MACHINES:
        return
    wanted = _RULES(0, 0, _SCOPE_SIGNAL)
    rules = libc().syscall(
        ctypes.c_long(_LANDLOCK_CREATE),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
        ctypes.c_uint32(0),
    )
    if rules >= 0:
        libc().syscall(
            ctypes.c_long(_LANDLOCK_RESTRICT), ctypes.c_int(rules), ctypes.c_uint32(0)
        )
        os.close(rules)


def site_folders() -> tuple[str, ...]:
    """Where installed packages lie: what runs the tests is read from there."""
    import sysconfig

    found = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return tuple(sorted(os.path.realpath(path) for path in found if path))


def _freeze(path: str) -> None:
    if os.path.islink(path) or not os.path.exists(path):
        return
    set_ = os.statvfs(path).f_flag
    kept = sum(flag for seen, flag in _FLAGS if set_ & seen)
    _mount(path, path, _BIND)
    _mount("none", path, _BIND | _REMOUNT | _READ_ONLY | kept)


@cache
def libc() -> Any:
    """The C library, with what is called of it looked up before a fork."""
    library = ctypes.CDLL(None, use_errno=True)
    for name in _CALLED:
        getattr(library, name, None)  # kept by the library from now on
    return library


def _mount(source: str, target: str, flags: int, kind: str = "") -> None:
    done = libc().mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind) if kind else None,
        ctypes.c_ulong(flags),
        None,
    )
    _check(done, target)


def _give_up(capabilities: Sequence[int]) -> None:
    """Drop rights for good, also for programs that are started."""
    for number in capabilities:
        _check(libc().prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), "capabilities")
    header = _HEADER(_CAPABILITIES_3, 0)
    data = _DATA()
    _check(libc().capget(header, data), "capabilities")
    for number in capabilities:
        for kind in range(3):  # effective, permitted, inheritable
            data[3 * (number // 32) + kind] &= ~(1 << number % 32) & 0xFFFFFFFF
    _check(libc().capset(header, data), "capabilities")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
