"""What every journal has to do; subclass it and say how one is made.

.. code-block:: python

    class TestMyJournal(JournalContract):
        @pytest.fixture
        def reopen(self, tmp_path):
            return lambda: MyJournal(tmp_path)
"""

# ruff: noqa: D102 - the name of a test says what it tests

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_evo.events import AcceptanceDecided
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import Event
from pytest_evo.events import ProposalMade
from pytest_evo.events import RequestStarted
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunResumed
from pytest_evo.models import Case
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Decision
from pytest_evo.models import Json
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import Status
from pytest_evo.models import Usage
from pytest_evo.protocols import Journal

TREE = "ab" * 32


def rollout(number: int = 0, **changes: object) -> RolloutRecorded:
    """A finished rollout with every kind of field filled in."""
    fields: dict[str, object] = {
        "candidate": "c0001",
        "tree": TREE,
        "case": f"tests/test_a.py::test_x[{number}]",
        "split": Split.TRAIN,
        "repeat": 0,
        "outcome": Outcome.PASSED,
        "score": 0.25,
        "seconds": 0.125,
        "purpose": Purpose.CHILD,
        "iteration": 1,
        "metrics": (Metric("recall", 0.5), Metric("cost", 2.0, audit=True)),
        "usage": Usage(calls=1, input_tokens=7, usd=None),
        "reach": ("pipeline.toml",),
        "worker": "gw0",
        "trace": f"candidates/c0001/rollouts/x/{number}.json",
    }
    return RolloutRecorded(**{**fields, **changes})  # type: ignore[arg-type]


def started(number: int = 0) -> RequestStarted:
    """A request that is about to leave."""
    runs = ((f"tests/test_a.py::test_x[{number}]", 0),)
    return RequestStarted(f"r{number}", "c0001", TREE, Purpose.CHILD, runs)


def samples() -> list[Event]:
    """Events with the values that are easy to lose: text, nesting, None, empty."""
    entry = ChangelogEntry("a.py", "größer\n\u2028", "modified", ("t::x",))
    data: dict[str, Json] = {
        "knobs": {"bm25.k1": 1.5, "n": 3},
        "list": [1, "a", None, [True]],
    }
    return [
        CasesFrozen((Case("t::a", Split.VAL, group="g"),), (("t::b", "skipped"),)),
        started(),
        rollout(),
        ProposalMade(1, 0, 0, "c0000", TREE, None, False, (entry,), Usage(2), data),
        ProposalMade(1, 0, 1, "c0000", None, "nothing changed"),
        AcceptanceDecided(1, 0, "c1", Decision.UNDECIDED, -0.1, 0.0, None, ""),
        CandidateRecorded("c0001", "c0000", TREE, Status.ACCEPTED, data=data),
    ]


class JournalContract:
    """Tests for anything that keeps the promises of ``protocols.Journal``."""

    @pytest.fixture
    def reopen(self) -> Callable[[], Journal]:
        """Give a function that opens the same journal as a new session would.

        What an earlier session noted and did not close is found by the next.
        """
        raise NotImplementedError("override the fixture 'reopen'")

    def test_new_journal_is_empty(self, reopen: Callable[[], Journal]) -> None:
        assert list(reopen().replay()) == []

    def test_appended_events_come_back_equal_and_in_order(
        self, reopen: Callable[[], Journal]
    ) -> None:
        journal = reopen()
        journal.append(*samples())
        assert list(journal.replay()) == samples()
        assert list(reopen().replay()) == samples()

    def test_notes_are_not_replayed(self, reopen: Callable[[], Journal]) -> None:
        journal = reopen()
        journal.open("1").note(rollout(), commit=True)
        assert list(journal.replay()) == []
        assert list(reopen().replay()) == []

    def test_new_scope_has_found_nothing(self, reopen: Callable[[], Journal]) -> None:
        assert list(reopen().open("baseline").found) == []

    def test_notes_of_a_killed_session_are_found(
        self, reopen: Callable[[], Journal]
    ) -> None:
        scope = reopen().open("1")
        for event in samples():
            scope.note(event)
        assert list(reopen().open("1").found) == samples()

    def test_notes_go_on_behind_those_found(
        self, reopen: Callable[[], Journal]
    ) -> None:
        reopen().open("1").note(rollout(1))
        reopen().open("1").note(rollout(2), commit=True)
        assert list(reopen().open("1").found) == [rollout(1), rollout(2)]

    def test_scope_closes_with_the_given_events_in_the_given_order(
        self, reopen: Callable[[], Journal]
    ) -> None:
        journal = reopen()
        scope = journal.open("1")
        scope.note(rollout(2))
        scope.note(rollout(1))
        scope.close([rollout(1), rollout(2), started()])
        assert list(journal.replay()) == [rollout(1), rollout(2), started()]
        assert list(reopen().replay()) == [rollout(1), rollout(2), started()]

    def test_found_events_can_be_closed(self, reopen: Callable[[], Journal]) -> None:
        reopen().open("1").note(rollout(1))
        journal = reopen()
        scope = journal.open("1")
        scope.close([*scope.found, rollout(2)])
        assert list(reopen().replay()) == [rollout(1), rollout(2)]

    def test_scopes_enter_the_journal_in_the_order_of_closing(
        self, reopen: Callable[[], Journal]
    ) -> None:
        journal = reopen()
        first, second = journal.open("1"), journal.open("2")
        first.note(rollout(1))
        second.note(rollout(2))
        second.close([rollout(2)])
        journal.append(RunResumed(0, 1.0))
        first.close([rollout(1)])
        assert list(journal.replay()) == [rollout(2), RunResumed(0, 1.0), rollout(1)]

    def test_scopes_do_not_see_each_other(self, reopen: Callable[[], Journal]) -> None:
        journal = reopen()
        journal.open("1").note(rollout(1))
        journal.open("2").note(rollout(2))
        after = reopen()
        assert list(after.open("1").found) == [rollout(1)]
        assert list(after.open("2").found) == [rollout(2)]
        assert list(after.open("3").found) == []

    def test_empty_scope_can_close(self, reopen: Callable[[], Journal]) -> None:
        journal = reopen()
        journal.open("1").close([])
        assert list(reopen().replay()) == []

    def test_closed_scope_takes_nothing_more(
        self, reopen: Callable[[], Journal]
    ) -> None:
        scope = reopen().open("1")
        scope.close([rollout()])
        with pytest.raises(ValueError, match="closed"):
            scope.note(rollout())
        with pytest.raises(ValueError, match="closed"):
            scope.close([rollout()])

    def test_scope_opened_again_replaces_the_one_before(
        self, reopen: Callable[[], Journal]
    ) -> None:
        journal = reopen()
        before = journal.open("1")
        before.note(rollout(1))
        after = journal.open("1")
        assert list(after.found) == [rollout(1)]
        with pytest.raises(ValueError, match="opened again"):
            before.note(rollout(2))

    def test_closed_name_can_be_used_for_a_new_scope(
        self, reopen: Callable[[], Journal]
    ) -> None:
        journal = reopen()
        scope = journal.open("final")
        scope.note(rollout(1))
        scope.close([rollout(1)])
        again = journal.open("final")
        assert list(again.found) == []
        again.note(rollout(2))
        after = reopen()
        assert list(after.replay()) == [rollout(1)]
        assert list(after.open("final").found) == [rollout(2)]

    def test_name_that_leaves_the_folder_is_refused(
        self, reopen: Callable[[], Journal]
    ) -> None:
        with pytest.raises(ValueError, match="cannot name a scope"):
            reopen().open("../1")
