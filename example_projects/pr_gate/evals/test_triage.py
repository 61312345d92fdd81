"""Does every message reach the queue that a person would have chosen?"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from router import route

MESSAGES = list(csv.DictReader(Path(__file__).with_name("messages.csv").open()))


@pytest.mark.parametrize("row", MESSAGES, ids=lambda row: row["message"][:40])
def test_message_reaches_its_queue(row, evo_artifact):
    assert route(row["message"], evo_artifact) == row["queue"]
