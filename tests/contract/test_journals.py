from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_evo.protocols import Journal
from pytest_evo.store.clock import RunClock
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.journal import MemoryJournal
from pytest_evo.testing.journal_contract import JournalContract


class TestFileJournal(JournalContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Callable[[], Journal]]:
        opened: list[FileJournal] = []

        def reopen() -> Journal:
            opened.append(FileJournal(tmp_path, RunClock()))
            return opened[-1]

        yield reopen
        for journal in opened:
            journal.close()


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def reopen(self) -> Callable[[], Journal]:
        journal = MemoryJournal()
        return lambda: journal
