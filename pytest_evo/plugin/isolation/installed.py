"""Which loaded modules are installed packages, and not the project's own code."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

_OURS = str(Path(__file__).parents[2])  # the package, not where it lies
_SITES = frozenset({"site-packages", "dist-packages"})
_NEVER = frozenset({"__main__", "__mp_main__", "antigravity", "this"})


def installed_prefixes() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        found.add(site.getusersitepackages())
    # further ones that a .pth file or $PYTHONPATH has added
    found.update(path for path in sys.path if Path(path).name in _SITES)
    resolved = {str(Path(name).resolve()) for name in found}
    return tuple(f"{name}/" for name in sorted(found | resolved | {_OURS}))


def attribute(module: object, name: str) -> Any:
    """A module's own attribute; asking a lazy module would load it."""
    names = getattr(module, "__dict__", None)
    return names.get(name) if isinstance(names, dict) else None


def is_installed(name: str, module: ModuleType, prefixes: tuple[str, ...]) -> bool:
    """Whether importing the module anew, by its name, reads nothing of the project."""
    origin = attribute(module, "__file__")
    if name in _NEVER or not isinstance(origin, str):
        return False
    spec = attribute(module, "__spec__")
    if getattr(spec, "name", None) != name:  # made by hand, or an alias
        return False
    return origin.startswith(prefixes)


def forget_foreign(
    prefixes: tuple[str, ...], keep: Collection[str] = frozenset()
) -> list[str]:
    """Unload what an installed package has imported of a project; return the names.

    ``keep`` names modules that were there before anything of a session was imported.
    """
    gone = [
        name
        for name, module in list(sys.modules.items())
        if name not in _NEVER
        and name not in keep
        and isinstance(origin := attribute(module, "__file__"), str)
        and not origin.startswith(prefixes)
    ]
    for name in gone:
        del sys.modules[name]
    return gone
