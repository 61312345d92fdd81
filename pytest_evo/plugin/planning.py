"""Settings and what the workers collected to the plan of a run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from pytest_evo.engine.baseline import estimate
from pytest_evo.engine.budget import Limits
from pytest_evo.engine.parts import Limit
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.setup import BATCH
from pytest_evo.errors import SuiteProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Split
from pytest_evo.models import TreeHash
from pytest_evo.settings import Settings
from pytest_evo.wording import count

MOST_SLOTS = 4
LEAST_SEARCH = 500


def choose_cases(
    marks: Sequence[CaseMark], how: str, settings: Settings
) -> tuple[tuple[CaseMark, ...], str]:
    """The cases among what was collected, and how they were chosen.

    Raises:
        SuiteProblem: the setting ``cases`` matches nothing.
    """
    chosen = tuple(marks)
    if settings.cases:
        chosen = tuple(mark for mark in marks if _matches(mark.id, settings.cases))
        how = f"{len(chosen)} of {len(marks)} match the setting cases"
    if not chosen:
        raise SuiteProblem(
            f"cases = {list(settings.cases)!r} matches nothing of "
            f"{count(len(marks), 'collected test')}, for example {marks[0].id!r}. "
            "Write globs of node ids."
        )
    salt = "\0".join(
        f"{name}={os.environ.get(name, '')}" for name in settings.fingerprint_env
    )
    return tuple(_salted(mark, salt) for mark in chosen), how


def explicit_splits(
    marks: Sequence[CaseMark], settings: Settings
) -> tuple[dict[CaseId, Split], str]:
    """Splits that somebody has said, and how, for the header.

    A hook or a marker (both are in the marks) wins over the globs of the settings.
    """
    globs = {
        Split.TRAIN: settings.split.train,
        Split.VAL: settings.split.val,
        Split.TEST: settings.split.test,
    }
    splits: dict[CaseId, Split] = {}
    for mark in marks:
        if mark.split is not None:
            splits[mark.id] = mark.split
            continue
        for split, patterns in globs.items():
            if _matches(mark.id, patterns):
                splits[mark.id] = split
    if not splits:
        return {}, "by a seeded hash, stratified by file and baseline outcome"
    marked = sum(1 for mark in marks if mark.split is not None)
    named = len(splits) - marked
    rest = len(marks) - len(splits)
    ways = [
        f"{marked} by marker or hook" if marked else "",
        f"{named} by the setting split" if named else "",
        f"{rest} by a seeded hash" if rest else "",
    ]
    return splits, ", ".join(way for way in ways if way)


def choose_slots(settings: Settings, workers: int, in_process: bool) -> int:
    """How many iterations run at the same time."""
    if settings.slots is not None:
        return settings.slots
    if in_process:
        return 1
    return max(1, min(MOST_SLOTS, workers // (settings.batch or BATCH)))


def make_plan(
    settings: Settings,
    schema: ArtifactSchema,
    start: TreeHash,
    splits: Mapping[CaseId, Split],
) -> Plan:
    """The plan of a run whose settings are complete."""
    return Plan(
        schema=schema,
        objective=settings.objective,
        start=start,
        slots=settings.slots or 1,
        depth=settings.chain_depth,
        batch=settings.batch,
        repeats=settings.repeats,
        noise=settings.noise,
        fractions=_fractions(settings),
        seed=settings.seed,
        limits=tuple(Limit(row.metric, row.max_ratio) for row in settings.limit),
        splits=splits,
    )


def _fractions(settings: Settings) -> tuple[float, float, float] | None:
    shares = settings.split.fractions
    if shares is None:
        return None
    train, val, test = (*shares, 0.0)[:3]
    return train, val, test


def make_limits(
    settings: Settings, marks: Sequence[CaseMark], plan: Plan
) -> tuple[Limits, bool]:
    """The six limits, and whether the one on rollouts is the default."""
    limits = Limits(
        rollouts=settings.budget_rollouts,
        train_rollouts=settings.budget_train_rollouts,
        iterations=settings.budget_iterations,
        tokens=settings.budget_tokens,
        seconds=settings.budget_time,
        usd=settings.budget_usd,
    )
    if limits != Limits():
        return limits, False
    fixed = estimate(marks, plan).total
    return replace(limits, rollouts=fixed + max(LEAST_SEARCH, 2 * len(marks))), True


def limit_texts(limits: Limits, default: bool) -> dict[str, str]:
    """The limits for the header."""
    rows = {
        "rollouts": limits.rollouts,
        "train rollouts": limits.train_rollouts,
        "iterations": limits.iterations,
        "tokens": limits.tokens,
    }
    texts = {name: f"{value:,}" for name, value in rows.items() if value is not None}
    if default:
        texts["rollouts"] += " (the default)"
    if limits.seconds is not None:
        texts["time"] = f"{limits.seconds:,.0f} s"
    if limits.usd is not None:
        texts["usd"] = f"{limits.usd:g}"
    return texts


def _salted(mark: CaseMark, salt: str) -> CaseMark:
    if not salt:
        return mark
    text = f"{mark.fingerprint}\0{salt}".encode("utf-8", "surrogatepass")
    return replace(mark, fingerprint=hashlib.sha256(text).hexdigest())


def _matches(case: CaseId, patterns: Iterable[str]) -> bool:
    """Whether a glob covers the id, or names its test, class, file or folder."""
    for pattern in (one.rstrip("/") for one in patterns):
        above = (f"{pattern}[[]*", f"{pattern}::*", f"{pattern}/*")
        if case == pattern or any(fnmatchcase(case, one) for one in (pattern, *above)):
            return True
    return False
