from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_sample import make_record

from pytest_evo.cli import main
from pytest_evo.errors import BaselineProblem
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.record import read_record
from pytest_evo.gate.record import record_text
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import Removed
from pytest_evo.gate.values import Stored


def written(record: GateRecord, folder: Path) -> str:
    path = folder / "gate.json"
    path.write_text(record_text(record, record.decision()), encoding="utf-8")
    return str(path)


def test_record_comes_back_and_decides_the_same() -> None:
    record = make_record(removed=[Removed("t.py::gone", False)], notes=["a note"])
    case = GateCase("t.py::stored", stored=Stored(3, 2, 0.6, 0.3))
    record = GateRecord(
        **{
            **{name: getattr(record, name) for name in record.__slots__},
            "cases": (*record.cases, case),
        }
    )
    text = record_text(record, record.decision())
    assert read_record(text, "gate.json") == record
    assert read_record(text, "gate.json").decision() == record.decision()


def test_one_rollout_is_one_line() -> None:
    record = make_record()
    text = record_text(record, record.decision())
    arms = [line for line in text.splitlines() if '"arm": "base"' in line]
    bases = [row for row in record.observations if row.arm is Arm.BASE]
    assert len(arms) == len(bases)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"pytest_evo_gate": 2}', '{"pytest_evo_gate": 1, "x": 1}'],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(BaselineProblem, match=r"Give the gate\.json"):
        read_record(text, "gate.json")


def test_gate_decides_again_under_other_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(make_record([], removed=[Removed("t.py::gone", True)]), tmp_path)
    assert main(["gate", path]) == 1
    assert "t.py::gone" in capsys.readouterr().out
    assert main(["gate", path, "--accept-removed"]) == 0
    assert main(["gate", path, "--accept-removed", "--json"]) == 0
    text = capsys.readouterr().out
    data = json.loads(text[text.index("{\n") :])
    assert data["verdict"] == "passed"
    out = tmp_path / "out"
    assert main(["gate", path, "--policy", "strict", "--reports", str(out)]) == 1
    assert (out / "junit.xml").is_file()


def test_gate_decides_again_with_a_tolerance(tmp_path: Path) -> None:
    path = written(make_record(["t.py::test_worse"], same=9), tmp_path)
    assert main(["gate", path]) == 1
    assert main(["gate", path, "--tolerance", "0.09"]) == 1
    assert main(["gate", path, "--tolerance", "0.1"]) == 0


@pytest.mark.parametrize(
    "arguments", [["nothing.json"], ["--margin", "7"], ["--policy", "lenient"]]
)
def test_gate_says_what_to_type(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", *arguments]) == 4
    assert capsys.readouterr().err.startswith("pytest-evo: ")
