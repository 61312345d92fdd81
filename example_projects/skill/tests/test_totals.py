from __future__ import annotations

import json

import pytest
from agent import answer
from receipts import load_receipts

pytestmark = pytest.mark.evo(deterministic=True)  # the agent is scripted


@pytest.mark.parametrize("receipt", load_receipts(), ids=lambda receipt: receipt.id)
def test_total_is_right(receipt, evo_artifact, evo_trace):
    reply = answer(evo_artifact, receipt.task, receipt.text, evo_trace)
    try:
        cents = json.loads(reply)["cents"]
    except (ValueError, TypeError, LookupError):
        pytest.fail(f"no JSON object with cents: {reply!r}")
    assert cents == receipt.cents
