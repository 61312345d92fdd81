from __future__ import annotations

import pytest
from diagnosis_world import group_answers
from diagnosis_world import reading
from diagnosis_world import scripted
from diagnosis_world import versions

from pytest_evo.chat import ChatRequest
from pytest_evo.diagnosis.ecdysis import AcrossCases
from pytest_evo.diagnosis.mara import CaseByCase
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.errors import ModelFailed
from pytest_evo.protocols import Diagnoser
from pytest_evo.testing.diagnoser_contract import DiagnoserContract


class TestNone(DiagnoserContract):
    @pytest.fixture
    def diagnoser(self) -> Diagnoser:
        return NoDiagnosis()


class TestCaseByCase(DiagnoserContract):
    @pytest.fixture
    def diagnoser(self) -> Diagnoser:
        return CaseByCase(scripted(reading()), versions())


class TestAcrossCases(DiagnoserContract):
    @pytest.fixture
    def diagnoser(self) -> Diagnoser:
        return AcrossCases(scripted(group_answers), versions())


class TestModelThatFails(DiagnoserContract):
    @pytest.fixture
    def diagnoser(self) -> Diagnoser:
        def fail(request: ChatRequest) -> Exception:
            return ModelFailed("503, three times")

        return CaseByCase(scripted(fail), versions())


class TestModelThatTalksNonsense(DiagnoserContract):
    @pytest.fixture
    def diagnoser(self) -> Diagnoser:
        nonsense = reading(
            observation="it fails", quotes=["never said this"], file="../etc/passwd"
        )
        return CaseByCase(scripted(nonsense), versions())
