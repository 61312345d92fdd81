"""Makes a session that was started in the project run in a copy of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_evo.plugin.isolation.fresh import ZygoteSpec
from pytest_evo.plugin.isolation.installed import attribute

_PATH_LISTS = ("PYTHONPATH",)


class Relocation:
    """From a project to a copy; without a copy everything stays as it is."""

    def __init__(self, project: Path, workspace: str | None) -> None:
        self._old = os.path.realpath(project)
        self._given = str(project)
        self._new = workspace

    def path(self, text: str) -> str:
        """An absolute path in the project, moved into the copy."""
        if self._new is None:
            return text
        for old in (self._given, self._old):
            if text == old or text.startswith(old + os.sep):
                return self._new + text[len(old) :]
        return text

    def environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """The environment with the module search path moved."""
        moved = dict(wanted)
        for name in _PATH_LISTS:
            if name in moved:
                parts = moved[name].split(os.pathsep)
                moved[name] = os.pathsep.join(map(self.path, parts))
        return moved

    def enter(self) -> None:
        """Move this process: working directory and where modules are found."""
        if self._new is None:
            return
        os.chdir(self.path(os.getcwd()))  # noqa: PTH109 (as spelled)
        sys.path[:] = [self.path(entry) for entry in sys.path]
        for name, module in list(sys.modules.items()):
            mapping: Any = attribute(module, "MAPPING")
            if name.startswith("__editable__") and isinstance(mapping, dict):
                mapping.update({key: self.path(mapping[key]) for key in mapping})

    def arguments(self, spec: ZygoteSpec) -> list[str]:
        """The session's arguments; in a copy with its own rootdir and ini file."""
        if self._new is None:
            return list(spec.args)
        fixed = [f"--rootdir={self._new}"]
        if spec.inifile is not None:
            fixed += ["-c", self.path(spec.inifile)]
        return [*fixed, *self._moved(spec.args, spec.invocation_dir)]

    def _moved(self, args: Iterable[str], invocation_dir: str) -> Iterable[str]:
        for arg in args:
            option, equals, value = arg.partition("=")
            if equals and option.startswith("-"):
                yield f"{option}={self.path(value)}"
            elif arg.startswith("-"):
                yield arg
            else:
                yield self._argument(arg, invocation_dir)

    def _argument(self, arg: str, invocation_dir: str) -> str:
        """A path or an option's value.

        Relative paths lead into the copy by themselves, unless the session was started
        outside of the project.
        """
        name, colons, rest = arg.partition("::")
        if self.path(invocation_dir) != invocation_dir:
            return self.path(name) + colons + rest
        path = os.path.join(invocation_dir, name)  # noqa: PTH118 (may be absolute)
        if name and Path(path).exists():
            moved = self.path(os.path.abspath(path))  # noqa: PTH100 (keep links)
            if moved != path:
                return moved + colons + rest
        return self.path(name) + colons + rest
