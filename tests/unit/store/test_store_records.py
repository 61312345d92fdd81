from __future__ import annotations

import json
import zlib
from dataclasses import fields
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.events import AcceptanceDecided
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IterationClosed
from pytest_evo.events import NoiseMeasured
from pytest_evo.events import ProposalMade
from pytest_evo.events import RequestStarted
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunResumed
from pytest_evo.events import RunStopped
from pytest_evo.models import Decision
from pytest_evo.models import Status
from pytest_evo.store.records import decode
from pytest_evo.store.records import encode
from pytest_evo.store.records import ENVELOPE
from pytest_evo.store.records import frame
from pytest_evo.store.records import parse
from pytest_evo.store.records import Record
from pytest_evo.store.records import stamp
from pytest_evo.testing.journal_contract import rollout
from pytest_evo.testing.journal_contract import samples

AT = "2026-11-29T15:30:12.000001Z"
EVENTS = st.one_of(
    *(
        st.from_type(kind)
        for kind in (
            AcceptanceDecided,
            DiagnosesMade,
            FinalMeasured,
            IterationClosed,
            NoiseMeasured,
            RequestStarted,
            RolloutRecorded,
            RunResumed,
            RunStopped,
        )
    )
)


def line_of(event: Event, seq: int = 1, scope: str | None = None) -> bytes:
    return frame(seq, event.kind, AT, scope, encode(event))


def read(line: bytes) -> Record:
    record = parse(line.removesuffix(b"\n"))
    assert record is not None
    return record


@given(EVENTS)
def test_any_event_comes_back_from_its_line(event: Event) -> None:
    found = decode(read(line_of(event)))
    assert type(found) is type(event)
    assert encode(found) == encode(event)  # NaN is not equal to itself


@pytest.mark.parametrize("event", samples(), ids=lambda event: event.kind)
def test_sample_event_comes_back_from_its_line(event: Event) -> None:
    assert decode(read(line_of(event, 9, "baseline"))) == event


def test_line_is_json_with_the_documented_envelope_in_order() -> None:
    line = line_of(rollout(), 7, "3")
    content = json.loads(line)
    assert list(content)[:5] == ["seq", "kind", "at", "scope", "candidate"]
    assert list(content)[-1] == "check"
    assert (content["seq"], content["kind"], content["at"]) == (7, "rollout", AT)
    assert content["score"] == 0.25
    assert line.count(b"\n") == 1
    assert line.count(b'"kind"') == 1


def test_check_is_the_crc_of_the_line_without_it() -> None:
    line = line_of(rollout())
    check = json.loads(line)["check"]
    without = line.replace(f',"check":"{check}"'.encode(), b"").rstrip(b"\n")
    assert check == f"{zlib.crc32(without):08x}"


@given(st.data())
def test_no_changed_byte_passes_for_the_record(data: st.DataObject) -> None:
    line = line_of(rollout(), 3, "1").rstrip(b"\n")
    place = data.draw(st.integers(0, len(line) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    assert parse(line[:place] + bytes([value]) + line[place + 1 :]) is None


@given(st.integers(0, 400))
def test_no_part_of_a_line_is_a_record(length: int) -> None:
    line = line_of(rollout()).rstrip(b"\n")
    assert parse(line[: min(length, len(line) - 1)]) is None


def test_no_field_of_an_event_shadows_the_envelope() -> None:
    for kind in get_args(Event):
        names = [field.name for field in fields(kind)]
        assert ENVELOPE & set(names) == {"kind"}
        assert names[-1] == "kind", "it is cut off the end of the encoded event"


def test_lone_surrogates_are_written_as_their_escapes() -> None:
    event = CandidateRecorded(
        "c1", None, "ab", Status.ACCEPTED, data={"why\udc80": ["\ud800"]}
    )
    found = decode(read(line_of(event)))
    assert isinstance(found, CandidateRecorded)
    assert found.data == {"why\\udc80": ["\\ud800"]}


def test_free_data_that_json_cannot_hold_becomes_text() -> None:
    event = ProposalMade(1, 0, 0, "c0", None, data={"a": {1j}, "b": (1, 2)})
    found = decode(read(line_of(event)))
    assert isinstance(found, ProposalMade)
    assert found.data == {"a": ["1j"], "b": [1, 2]}


def test_infinite_numbers_come_back() -> None:
    lowest = float("-inf")
    event = AcceptanceDecided(1, 0, "c", Decision.REJECTED, lowest, 0.0, None, "")
    found = decode(read(line_of(event)))
    assert isinstance(found, AcceptanceDecided)
    assert found.effect == lowest
    assert json.loads(line_of(event))["effect"] == "-Infinity"


def test_field_of_a_wrong_type_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="seconds"):
        encode(rollout(seconds="soon"))


def test_unknown_kind_names_the_record_and_the_way_out() -> None:
    record = Record(4, "sheep", AT, None, b"")
    with pytest.raises(RunDirectoryProblem, match=r"record 4 .* 'sheep'.*version"):
        decode(record)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"depth"', b'"deepness"'), (b'"rollouts":0', b'"rollouts":0,"extra":1')],
)
def test_unknown_field_is_refused(old: bytes, new: bytes) -> None:
    event = IterationClosed(1, 0, "c0000", None, 0, False, "perfect")
    changed = encode(event).replace(old, new)
    with pytest.raises(RunDirectoryProblem, match=r"extra|deepness|depth"):
        decode(Record(1, "iteration", AT, None, changed))


def test_stamp_is_utc_with_microseconds() -> None:
    east = timezone(timedelta(hours=2))
    moment = datetime(2026, 11, 29, 17, 30, 12, 1, tzinfo=east)
    assert stamp(moment) == AT
