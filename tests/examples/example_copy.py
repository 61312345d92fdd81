"""A copy of an example project, and its modules, for one test module."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "example_projects"


def copy_of(name: str, folder: Path) -> Path:
    """A copy without what runs have left, which no test changes for the others."""
    hidden = shutil.ignore_patterns(".*", "__pycache__", "evo-reports")
    return Path(shutil.copytree(EXAMPLES / name, folder / name, ignore=hidden))


@contextmanager
def loaded(project: Path, names: Sequence[str]) -> Iterator[dict[str, ModuleType]]:
    """Modules of a copy, gone from ``sys.modules`` afterwards."""
    modules: dict[str, ModuleType] = {}
    for name in names:
        assert name not in sys.modules, f"another module is called {name}"
        spec = importlib.util.spec_from_file_location(name, project / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        modules[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    yield modules
    for name in names:
        del sys.modules[name]
