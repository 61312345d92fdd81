"""``evo-baseline.json``: what the artifact scored, small enough to be committed.

One case a line and everything sorted, so that two branches that measure different cases
merge, and a diff shows what changed. Files that cases read are listed once as sets;
cases name a set by its place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from datetime import date
from typing import Annotated
from typing import Any
from typing import Literal

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import ValidationError

from pytest_evo.errors import BaselineProblem
from pytest_evo.models import CaseId
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Tree

VERSION = 1
_DIGITS = 24  # of a fingerprint: enough to tell versions of a test apart
_PLACES = 6


@dataclass(frozen=True, slots=True)
class BaselineCase:
    """What is known of one case. Costs are means over its runs."""

    id: CaseId
    fingerprint: str
    body: str
    outcome: Outcome  # of most of its runs
    runs: int
    passes: int
    mean: float
    variance: float  # within the case, over its runs; 0 for one run
    noisy: bool
    seconds: float = 0.0
    tokens: float = 0.0
    usd: float | None = 0.0
    metrics: tuple[Metric, ...] = ()  # means, by name
    reach: tuple[str, ...] | None = None  # artifact files; None: any
    project: tuple[str, ...] = ()  # other project files that it read
    project_digest: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A measured version of the artifact."""

    artifact: str
    tree: str
    files: Mapping[str, str]  # path -> start of the sha256 of its content
    bytes: int
    cases: Mapping[CaseId, BaselineCase]
    made: date
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def short_fingerprint(fingerprint: str) -> str:
    """A fingerprint as the file holds it."""
    return hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass")).hexdigest()[
        :_DIGITS
    ]


def short_body(body: str) -> str:
    """What a case does, as the file holds it."""
    return body[:_DIGITS]


def file_digests(tree: Tree) -> dict[str, str]:
    """What the file says of the artifact's files and links."""
    found = {}
    for entry in tree.entries:
        if entry.kind == "file":
            runs = "x" if entry.mode & 0o100 else ""
            found[entry.path] = entry.blob[:_DIGITS] + runs
        elif entry.kind == "link":
            found[entry.path] = f"-> {entry.target}"
    return found


# -- writing -----------------------------------------------------------------------


def baseline_text(baseline: Baseline) -> str:
    """The file: JSON with one case, one file and one set of files a line."""
    reach = _Sets(case.reach for case in baseline.cases.values())
    project = _Sets(case.project for case in baseline.cases.values())
    digests = {c.project: c.project_digest for c in baseline.cases.values()}
    cases = {
        case.id: _row(case, reach, project)
        for _, case in sorted(baseline.cases.items())
    }
    rows: dict[str, object] = {
        "artifact": baseline.artifact,
        "bytes": baseline.bytes,
        "commit": baseline.commit,
        "date": baseline.made.isoformat(),
        "pytest_evo_baseline": VERSION,
        "tree": baseline.tree,
        "versions": dict(sorted(baseline.versions.items())),
    }
    lines = [f" {_json(name)}: {_json(value)}," for name, value in rows.items()]
    lines += _table("cases", cases)
    lines += _table("files", dict(sorted(baseline.files.items())))
    lines += _list("project", [[digests[one], *one] for one in project.sets])
    lines += _list("reach", reach.sets)
    return "{\n" + "\n".join(lines).removesuffix(",") + "\n}\n"


class _Sets:
    """Distinct sets of names, sorted so that the file does not depend on order."""

    def __init__(self, found: Iterable[Collection[str] | None]) -> None:
        distinct = {tuple(sorted(one)) for one in found if one is not None}
        self.sets = sorted(distinct)
        self._places = {one: place for place, one in enumerate(self.sets)}

    def place(self, names: Collection[str] | None) -> int | None:
        return None if names is None else self._places[tuple(sorted(names))]


def _row(case: BaselineCase, reach: _Sets, project: _Sets) -> dict[str, object]:
    return {
        "body": case.body,
        "fingerprint": case.fingerprint,
        "mean": round(case.mean, _PLACES),
        "metrics": [
            [metric.name, round(metric.value, _PLACES), metric.audit]
            for metric in case.metrics
        ],
        "noisy": case.noisy,
        "outcome": case.outcome.value,
        "passes": case.passes,
        "project": project.place(case.project),
        "reach": reach.place(case.reach),
        "runs": case.runs,
        "seconds": round(case.seconds, 3),
        "tokens": round(case.tokens, 1),
        "usd": None if case.usd is None else round(case.usd, _PLACES),
        "variance": round(case.variance, _PLACES),
    }


def _table(name: str, rows: Mapping[str, object]) -> list[str]:
    if not rows:
        return [f" {_json(name)}: {{}},"]
    inner = [f"  {_json(key)}: {_json(value)}," for key, value in rows.items()]
    inner[-1] = inner[-1].removesuffix(",")
    return [f" {_json(name)}: {{", *inner, " },"]


def _list(name: str, rows: Sequence[object]) -> list[str]:
    if not rows:
        return [f" {_json(name)}: [],"]
    inner = [f"  {_json(value)}," for value in rows]
    inner[-1] = inner[-1].removesuffix(",")
    return [f" {_json(name)}: [", *inner, " ],"]


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


# -- reading -----------------------------------------------------------------------

_Share = Annotated[float, Field(ge=0, le=1)]
_Amount = Annotated[float, Field(ge=0)]
_Place = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Row(_Strict):
    body: str
    fingerprint: str
    mean: _Share
    metrics: list[tuple[str, _Share, bool]]
    noisy: bool
    outcome: Outcome
    passes: int = Field(ge=0)
    project: _Place
    reach: _Place | None
    runs: int = Field(ge=1)
    seconds: _Amount
    tokens: _Amount
    usd: _Amount | None
    variance: _Amount


class _File(_Strict):
    artifact: str
    bytes: int = Field(ge=0)
    cases: dict[str, _Row]
    commit: str
    date: date
    files: dict[str, str]
    project: list[Annotated[list[str], Field(min_length=1)]]  # a digest, then names
    pytest_evo_baseline: Literal[1]
    reach: list[list[str]]
    tree: str
    versions: dict[str, str]


def read_baseline(text: str, name: str) -> Baseline:
    """Read the file back.

    Args:
        text: its content.
        name: how messages call it.

    Raises:
        BaselineProblem: it is no baseline, or of another version.
    """
    again = "Write it anew on the branch to compare with: pytest --evo-baseline-update"
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BaselineProblem(f"{name} is not JSON ({error}). {again}") from None
    if not isinstance(data, dict) or data.get("pytest_evo_baseline") != VERSION:
        raise BaselineProblem(
            f"{name} is no baseline of version {VERSION} of pytest-evo. {again}"
        )
    try:
        file = _File.model_validate(data)
        cases = {case: _case(case, row, file) for case, row in file.cases.items()}
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BaselineProblem(f"{name}: {where}: {first['msg']}. {again}") from None
    except IndexError:
        raise BaselineProblem(
            f"{name}: a case names no set of files. {again}"
        ) from None
    return Baseline(
        artifact=file.artifact,
        tree=file.tree,
        files=file.files,
        bytes=file.bytes,
        cases=cases,
        made=file.date,
        commit=file.commit,
        versions=file.versions,
    )


def _case(case: CaseId, row: _Row, file: _File) -> BaselineCase:
    digest, *project = file.project[row.project]
    return BaselineCase(
        id=case,
        fingerprint=row.fingerprint,
        body=row.body,
        outcome=row.outcome,
        runs=row.runs,
        passes=row.passes,
        mean=row.mean,
        variance=row.variance,
        noisy=row.noisy,
        seconds=row.seconds,
        tokens=row.tokens,
        usd=row.usd,
        metrics=tuple(Metric(*metric) for metric in row.metrics),
        reach=None if row.reach is None else tuple(file.reach[row.reach]),
        project=tuple(project),
        project_digest=digest,
    )
