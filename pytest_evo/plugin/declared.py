"""The few settings that plain runs and children need, read without validation.

Everything else reads the validated settings; these are read where importing the
validator would slow every pytest run down.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ARTIFACT_VARIABLE = "PYTEST_EVO_ARTIFACT"
REPEAT_VARIABLE = "PYTEST_EVO_REPEAT"
RUN_VARIABLE = "PYTEST_EVO_RUN"

_TABLE = pytest.StashKey[dict[str, Any]]()
_HOW_TO_DECLARE = (
    'declare it in pyproject.toml as\n\n    [tool.pytest_evo]\n    artifact = "DIR"\n\n'
    "or type --evo-artifact=DIR"
)


def declared(config: pytest.Config) -> dict[str, Any]:
    """The table as it stands in ``pytest_evo.toml`` or ``pyproject.toml``.

    Raises:
        pytest.UsageError: a file is no TOML.
    """
    if _TABLE not in config.stash:
        config.stash[_TABLE] = _read(config.rootpath)
    return config.stash[_TABLE]


def declared_text(config: pytest.Config, key: str) -> str | None:
    """A setting that is a text; None where it is missing or something else."""
    value = declared(config).get(key)
    return value if isinstance(value, str) else None


def project_artifact(config: pytest.Config) -> Path:
    """The artifact directory of the project as it is.

    Raises:
        pytest.UsageError: none is declared, or it is no directory.
    """
    given = config.getoption("evo_artifact", None) or _declared_artifact(config)
    if not given:
        _insist_on_sound_settings(config)
        raise pytest.UsageError(f"no artifact is declared: {_HOW_TO_DECLARE}")
    path = Path(os.path.normpath(config.rootpath / given))
    if not path.is_dir():
        _insist_on_sound_settings(config)
        raise pytest.UsageError(
            f"the artifact {given!r} is no directory below {config.rootpath}: "
            f"create it, or {_HOW_TO_DECLARE}"
        )
    return path


def _insist_on_sound_settings(config: pytest.Config) -> None:
    """Where something is missing, a misspelt key or table may be why.

    Raises:
        pytest.UsageError: the settings cannot be used.
    """
    from pytest_evo.errors import SettingsProblem
    from pytest_evo.settings import load_settings

    try:
        load_settings(config.rootpath, {})
    except SettingsProblem as problem:
        raise pytest.UsageError(str(problem)) from problem


def _declared_artifact(config: pytest.Config) -> str | None:
    wanted = config.getoption("evo_target", None)
    targets = declared(config).get("target")
    named = {
        str(target.get("name")): target.get("artifact")
        for target in (targets if isinstance(targets, list) else ())
        if isinstance(target, dict)
    }
    if wanted is not None:
        if wanted not in named:
            raise pytest.UsageError(
                f"--evo-target={wanted}: no such target (declared: "
                f"{', '.join(named) or 'none'})"
            )
        return named[wanted]
    artifact = declared_text(config, "artifact")
    if artifact is None and len(named) == 1:
        return next(iter(named.values()))
    if artifact is None and named:
        raise pytest.UsageError(
            f"{len(named)} targets are declared: type --evo-target=NAME with one of "
            f"{', '.join(named)}"
        )
    return artifact


def _read(rootdir: Path) -> dict[str, Any]:
    own = _parse(rootdir / "pytest_evo.toml")
    if own is not None and own.keys() != {"tool"}:
        return own
    for table in (own, _parse(rootdir / "pyproject.toml")):
        found = ((table or {}).get("tool") or {}).get("pytest_evo")
        if isinstance(found, dict):
            return found
    return {}


def _parse(path: Path) -> dict[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise pytest.UsageError(
            f"{path} is not valid TOML: {error}. Correct it."
        ) from error
