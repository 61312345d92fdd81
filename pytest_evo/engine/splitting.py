"""Deals cases into train, val and test."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from hashlib import sha256

from pytest_evo.errors import SuiteProblem
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Split
from pytest_evo.wording import count

ENOUGH_FOR_TEST = 40
Fractions = tuple[float, float, float]


def deal(
    marks: Sequence[CaseMark],
    outcomes: Mapping[CaseId, Outcome],
    explicit: Mapping[CaseId, Split],
    fractions: Fractions | None,
    seed: int,
) -> dict[CaseId, Split]:
    """Give every case a split.

    What is said explicitly (hook, marker, setting) stands. The rest is dealt by a
    seeded hash, stratified by file and baseline outcome, a ``group`` kept together:
    40/30/30 from 40 cases on, 50/50 train and val below. Where somebody names val
    himself, the rest is train.

    Raises:
        SuiteProblem: train or val would be empty, or a group is torn apart.
    """
    splits = dict(explicit)
    rest = [mark for mark in marks if mark.id not in splits]
    shares = _shares(set(splits.values()), fractions, len(marks))
    splits |= _deal_rest(rest, outcomes, shares, seed)
    _check_groups(marks, splits)
    _check_not_empty(marks, splits)
    return {mark.id: splits[mark.id] for mark in marks}


def _shares(
    named: set[Split], fractions: Fractions | None, count: int
) -> dict[Split, float]:
    if fractions is None:
        fractions = (0.4, 0.3, 0.3) if count >= ENOUGH_FOR_TEST else (0.5, 0.5, 0.0)
    shares = dict(zip(Split, fractions, strict=True))
    if Split.VAL in named:
        return {Split.TRAIN: 1.0}
    if Split.TRAIN in named:
        return {Split.VAL: 1.0}
    if Split.TEST in named:
        del shares[Split.TEST]
    return {split: share for split, share in shares.items() if share > 0}


def _deal_rest(
    marks: Sequence[CaseMark],
    outcomes: Mapping[CaseId, Outcome],
    shares: Mapping[Split, float],
    seed: int,
) -> dict[CaseId, Split]:
    total = sum(shares.values())
    dealt = dict.fromkeys(shares, 0)
    splits: dict[CaseId, Split] = {}
    for unit in _units(marks, outcomes, seed):
        size = sum(dealt.values()) + len(unit)
        split = max(shares, key=lambda name: shares[name] / total * size - dealt[name])
        dealt[split] += len(unit)
        splits |= dict.fromkeys(unit, split)
    return splits


def _units(
    marks: Iterable[CaseMark], outcomes: Mapping[CaseId, Outcome], seed: int
) -> list[list[CaseId]]:
    """Cases that stay together, stratum by stratum, in seeded order within each."""
    units: dict[str, list[CaseMark]] = {}
    for mark in marks:
        name = f"group {mark.group}" if mark.group else f"case {mark.id}"
        units.setdefault(name, []).append(mark)

    def order(name: str) -> tuple[str, str, str]:
        first = units[name][0]
        outcome = outcomes.get(first.id, Outcome.PASSED).value
        digest = sha256(f"{seed} {name}".encode("utf-8", "surrogatepass"))
        return (first.file, outcome, digest.hexdigest())

    return [[mark.id for mark in units[name]] for name in sorted(units, key=order)]


def _check_groups(marks: Sequence[CaseMark], splits: Mapping[CaseId, Split]) -> None:
    seen: dict[str, tuple[CaseId, Split]] = {}
    for mark in marks:
        if mark.group is None:
            continue
        first, split = seen.setdefault(mark.group, (mark.id, splits[mark.id]))
        if splits[mark.id] is not split:
            raise SuiteProblem(
                f"group {mark.group!r} is torn apart: {first} is {split.value} and "
                f"{mark.id} is {splits[mark.id].value}. Give the whole group one split."
            )


def _check_not_empty(marks: Sequence[CaseMark], splits: Mapping[CaseId, Split]) -> None:
    for split in (Split.TRAIN, Split.VAL):
        if split in splits.values():
            continue
        raise SuiteProblem(
            f"of {count(len(marks), 'case')} none is {split.value}: proposals learn "
            "from train and val ranks candidates, so both are needed. Mark some with "
            f'@pytest.mark.evo(split="{split.value}"), or list them under '
            f"[tool.pytest_evo.split] {split.value} = [...], or add cases."
        )
