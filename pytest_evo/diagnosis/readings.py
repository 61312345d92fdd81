"""What models have to answer when they diagnose: the edge where text becomes values."""

from __future__ import annotations

from typing import Annotated
from typing import Literal
from typing import TypeAlias

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field

from pytest_evo.models import CaseId
from pytest_evo.models import Diagnosis

Letter: TypeAlias = Literal["A", "B", "C", "D", "E", "F", "G", "H", "I"]
Said: TypeAlias = Annotated[str, Field(min_length=1, max_length=4_000)]
Quotes: TypeAlias = Annotated[list[Said], Field(max_length=12)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Methods(_Reply):
    """The five methods, each with what it showed."""

    incremental_evidence_tracing: Said
    success_extraction: Said
    oscillation_detection: Said
    inconsistency_patterns: Said
    run_corroboration: Said


class Earlier(_Reply):
    """What became of one earlier diagnosis."""

    diagnosis: Said
    letter: Letter
    why: Said


class CaseReading(_Reply):
    """One case, read by itself."""

    methods: Methods
    earlier: Annotated[list[Earlier], Field(max_length=100)]
    observation: Said
    quotes: Quotes
    cause: Said
    file: Said
    change: Said
    confidence: Share

    def diagnosis(self, case: CaseId) -> Diagnosis:
        """As the value that goes into the journal."""
        return Diagnosis(
            cases=(case,),
            observation=self.observation,
            cause=self.cause,
            file=self.file,
            change=self.change,
            quotes=tuple(self.quotes),
            classes={one.diagnosis: one.letter for one in self.earlier},
            confidence=self.confidence,
            methods=self.methods.model_dump(),
        )


class Group(_Reply):
    """Failures that have something in common."""

    title: Said
    cases: Annotated[list[str], Field(min_length=1, max_length=1_000)]
    pattern: Said
    quotes: Quotes
    kind: Literal["defect", "quirk"]
    why: Said


class Grouping(_Reply):
    """All failures of a batch in groups."""

    groups: Annotated[list[Group], Field(min_length=1, max_length=100)]


class Cause(_Reply):
    """The first role."""

    cause: Said
    file: Said
    quotes: Quotes
    confidence: Share


class Objection(_Reply):
    """The second role."""

    objection: Said
    counter_quotes: Quotes
    verdict: Literal["stands", "amended", "refuted"]
    cause: Said


class Specification(_Reply):
    """The third role."""

    methods: Methods
    earlier: Annotated[list[Earlier], Field(max_length=100)]
    file: Said
    change: Said
    confidence: Share
