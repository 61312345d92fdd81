from __future__ import annotations

import tracemalloc
from random import Random

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.engine.history import History
from pytest_evo.engine.history import PACKED_TOGETHER
from pytest_evo.engine.history import Prefix
from pytest_evo.engine.history import Tried
from pytest_evo.models import Attempt
from pytest_evo.models import candidate_id
from pytest_evo.models import ChangelogEntry


def attempt(number: int) -> Attempt:
    """One whose texts and scores are its own, as those of a real run are."""
    chance = Random(number)
    return Attempt(
        candidate_id(number + 1, 0),
        "c0000",
        number + 1,
        0,
        {f"tests/test_x.py::test_y[{k}]": chance.random() for k in range(8)},
        chance.random(),
        accepted=False,
        data={"knobs": {"bm25.k1": chance.random()}},
        changelog=(ChangelogEntry("prompt.md", "edit", f"why {number}"),),
        tree=f"{chance.getrandbits(256):064x}",
    )


@given(
    count=st.integers(0, 4 * PACKED_TOGETHER + 3),
    more=st.integers(0, 2 * PACKED_TOGETHER),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_prefix_reads_like_the_list_that_was_added(count, more, seed):
    history = History()
    rows = [attempt(number) for number in range(count + more)]
    for row in rows[:count]:
        history.append(row)
    prefix, expected = Prefix(history), rows[:count]
    for row in rows[count:]:
        history.append(row)
    assert len(prefix) == count
    assert list(prefix) == expected
    assert list(reversed(prefix)) == expected[::-1]
    order = Random(seed)
    for _ in range(20):
        at = slice(*(order.choice([None, order.randint(-600, 600)]) for _ in range(2)))
        assert prefix[at] == expected[at]
        if expected:
            number = order.randrange(-count, count)
            assert prefix[number] == expected[number]
    assert list(Prefix(history)) == rows


def test_ten_thousand_attempts_take_little_memory():
    history, tried = History(), Tried()
    for number in range(2 * PACKED_TOGETHER):
        history.append(attempt(number))
    tracemalloc.start()
    try:
        for number in range(10_000):
            row = attempt(number)
            history.append(row)
            tried.add(row.tree, row.iteration, row.step)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / 10_000 < 500  # bytes; as they are they would take 1,800


def test_tree_that_was_tried_is_known_by_its_first_candidate():
    tried, tree = Tried(), "ab" * 32
    tried.add(tree, 7, 3)
    tried.add(tree, 9, 0)
    assert tried.first(tree, 7) == "c0007-3"
    assert tried.first(tree, 6) is None  # not closed yet for an older snapshot
    assert tried.first("cd" * 32, 9) is None
