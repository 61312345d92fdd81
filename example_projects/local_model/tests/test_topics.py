"""The evals of `topics`: is the topic named, and nothing else?"""

from __future__ import annotations

import pytest
from tasks import is_topic
from tasks import topic_cases
from tasks import topics_task

TASK = topics_task()


@pytest.mark.parametrize("case", topic_cases(), ids=lambda case: case.id)
def test_topic_is_named(case, ask):
    answer = ask(TASK, case.text)
    assert is_topic(answer, case), f"{case.topic} was expected, not {answer!r}"
