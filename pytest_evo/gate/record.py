"""``gate.json``: all that a decision rests on, so that it can be made again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import ValidationError

from pytest_evo.errors import BaselineProblem
from pytest_evo.gate.decision import decide
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Reason
from pytest_evo.gate.values import ReasonKind
from pytest_evo.models import CaseId

VERSION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a case is written; ``line`` counts from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class GateRecord:
    """One gate: what was asked, what was seen, what a person should know."""

    artifact: str
    base: str  # as it was typed
    head_tree: str
    made: str  # ISO 8601
    cases: tuple[GateCase, ...]
    policy: GatePolicy
    change: Change
    observations: tuple[Observation, ...] = ()
    prefix: str = ""  # where the project is in its repository, slash included
    base_commit: str = ""
    base_tree: str = ""
    arm: str = "artifact"  # or "tree": the base's whole project
    isolation: str = ""
    stopped: str = ""  # why the plan ended before its end
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # why it could not be measured
    nothing_run: bool = False  # because nothing that any case reaches has changed
    places: Mapping[CaseId, Place] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def with_policy(self, **changes: object) -> GateRecord:
        """The same observations under other rules."""
        return replace(self, policy=replace(self.policy, **changes))  # type: ignore[arg-type]

    def decision(self) -> GateDecision:
        """Decide, from the observations alone."""
        made = decide(
            self.observations,
            self.cases,
            self.policy,
            self.change,
            stopped=self.stopped,
        )
        if self.problems:
            told = tuple(Reason(ReasonKind.ERRORS, text) for text in self.problems)
            return replace(
                made, verdict=GateVerdict.INCOMPLETE, reasons=(*told, *made.reasons)
            )
        return made


# -- the file ----------------------------------------------------------------------


class _Summary(BaseModel):
    """For readers that do not decide again."""

    model_config = ConfigDict(extra="forbid")
    verdict: GateVerdict
    exit_code: int
    reasons: list[str]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pytest_evo_gate: Literal[1]
    decision: _Summary
    record: GateRecord


def record_text(record: GateRecord, decision: GateDecision) -> str:
    """The file, one case or rollout a line: the record, and what was decided then."""
    summary = {
        "verdict": decision.verdict.value,
        "exit_code": int(decision.exit_code),
        "reasons": [reason.text for reason in decision.reasons],
    }
    facts = asdict(record)
    long = {name: facts.pop(name) for name in ("cases", "observations", "places")}
    lines = [f'"pytest_evo_gate": {VERSION},', f'"decision": {_json(summary)},']
    lines += ['"record": {', *(f"{_json(k)}: {_json(v)}," for k, v in facts.items())]
    for name in ("cases", "observations"):
        lines += [f"{_json(name)}: [", *_separated(map(_json, long[name])), "],"]
    places = (f"{_json(k)}: {_json(v)}" for k, v in long["places"].items())
    lines += ['"places": {', *_separated(places), "}", "}"]
    return "{\n" + "\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, default=str)


def _separated(rows: Iterable[str]) -> list[str]:
    """One row a line, with commas between them."""
    found = [f"{row}," for row in rows]
    return [*found[:-1], found[-1].removesuffix(",")] if found else []


def read_record(text: str, name: str) -> GateRecord:
    """Read the file back.

    Raises:
        BaselineProblem: it is no gate.json of this version.
    """
    again = "Give the gate.json that pytest --evo-gate wrote into evo-reports."
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BaselineProblem(f"{name} is not JSON ({error}). {again}") from None
    if not isinstance(data, dict) or data.get("pytest_evo_gate") != VERSION:
        raise BaselineProblem(
            f"{name} is no record of version {VERSION} of a gate. {again}"
        )
    try:
        record = _File.model_validate(data).record
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BaselineProblem(f"{name}: {where}: {first['msg']}. {again}") from None
    strangers = {o.case for o in record.observations} - {c.id for c in record.cases}
    if strangers:
        raise BaselineProblem(
            f"{name}: it has rollouts of {min(strangers)!r}, which is no case of it. "
            f"{again}"
        )
    return record
