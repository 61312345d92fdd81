from __future__ import annotations

import os

import pytest

from pytest_evo.plugin.gating.controller import no_way_out
from pytest_evo.plugin.gating.copies import Listing
from pytest_evo.plugin.gating.uncollected import in_a_line

LONG = """
tests/test_a.py:3: in <module>
    import answer
E     File "art/answer.py", line 1
E       def reply(q:
E   SyntaxError: '(' was never closed
"""


def test_code_that_ends_the_process_ends_no_session() -> None:
    before = os._exit
    with pytest.raises(SystemExit), no_way_out():
        os._exit(0)
    assert os._exit is before


def test_a_forked_child_may_end_itself() -> None:
    with no_way_out():
        child = os.fork()
        if not child:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (Listing({}, {"t.py": LONG}), "t.py: File"),
        (Listing({}, {"t.py": LONG}), "SyntaxError: '(' was never closed"),
        (Listing({}, {"t.py": "a\nb"}), "t.py: b"),
        (Listing({}, {"t.py": ""}), "t.py: "),
        (Listing(ended="the process ended with status 0"), "with status 0"),
        (Listing(), "without an error"),
    ],
)
def test_an_error_of_collection_is_told_in_a_line(after: Listing, said: str) -> None:
    assert said in in_a_line(after)
    assert "\n" not in in_a_line(after)
