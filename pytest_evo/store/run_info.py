"""``run.json``: what is known of a run before its first rollout."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import JsonValue
from pydantic import ValidationError

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store.disk import write_atomic

SCHEMA_VERSION = 1
RUN_FILE = "run.json"
SAVED = "run.saved"  # the same, in case run.json is destroyed


class Project(BaseModel):
    """Which project a run belongs to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    id: str


class RunInfo(BaseModel):
    """What ``run.json`` says: all that is known before the first rollout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    package_version: str
    id: str
    project: Project
    seed: int
    settings: dict[str, JsonValue]
    artifact: str  # relative to the rootdir, POSIX
    start_tree: str | None = None  # until the artifact has been read
    created: datetime
    python: str
    pytest: str


def read_info(path: Path) -> RunInfo:
    """Read the ``run.json`` of a run directory.

    Raises:
        RunDirectoryProblem: it is missing, damaged or of a newer version.
    """
    file = path / RUN_FILE
    try:
        raw = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise RunDirectoryProblem(
            f"{path} is no run directory, or lost its {RUN_FILE}. To bring it back "
            f"from its copy, type: pytest-evo repair {path.name}"
        ) from error
    except OSError as error:
        raise RunDirectoryProblem(
            f"cannot read {file}: {error.strerror}. Make it readable for you"
        ) from error
    except ValueError as error:
        raise _broken_info(file, str(error)) from error
    return validated(file, raw)


def validated(file: Path, raw: object) -> RunInfo:
    """Check the content of a ``run.json``.

    Raises:
        RunDirectoryProblem: it is damaged or of a newer version.
    """
    if not isinstance(raw, dict):
        raise _broken_info(file, "it holds no object")
    version = raw.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RunDirectoryProblem(
            f"{file} was written by pytest-evo {raw.get('package_version')} in form "
            f"{version}; this version reads up to form {SCHEMA_VERSION}. Update with: "
            "pip install -U pytest-evo"
        )
    try:
        return RunInfo.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _broken_info(file, f"field {where!r}: {first['msg']}") from error


def _broken_info(file: Path, why: str) -> RunDirectoryProblem:
    return RunDirectoryProblem(
        f"{file} is damaged ({why}). The journal beside it is not concerned. To bring "
        f"{file.name} back from its copy, type: pytest-evo repair {file.parent.name}"
    )


def write_info(path: Path, info: RunInfo) -> None:
    """Write ``run.json`` and its copy, each at once.

    Raises:
        RunDirectoryProblem: the disk refuses.
    """
    data = info.model_dump_json(indent=2).encode() + b"\n"
    write_atomic(path / SAVED, data)
    write_atomic(path / RUN_FILE, data)
