"""The evals of `extraction`: which of name, age and city are right?"""

from __future__ import annotations

import pytest
from tasks import extraction_task
from tasks import FIELDS
from tasks import person_cases
from tasks import right_fields

TASK = extraction_task()


@pytest.mark.parametrize("case", person_cases(), ids=lambda case: case.id)
def test_person_is_found(case, ask, evo_score):
    answer = ask(TASK, case.text)
    right = right_fields(answer, case)
    evo_score(len(right) / len(FIELDS))
    assert right == FIELDS, f"only {', '.join(right) or 'nothing'} right in {answer!r}"
