from __future__ import annotations

import json

import pytest
from pool_project import outcomes
from pool_project import project

__all__ = ["project"]


def test_lost_worker_is_replaced_and_its_runs_are_told(project):
    project.tests(
        """
        import os, signal, time
        def test_kills_worker():
            time.sleep(0.3)  # so that the worker has told of its start
            open(f"signal-{os.getppid()}-{signal.SIGKILL:d}", "w").close()
            time.sleep(60)
        def test_one(): pass
        def test_two(): pass
        """
    )
    project.drive(
        """
rows = []
for _ in range(3):
    rows += await driver.run("test_one", "test_kills_worker", "test_two")
rows += await driver.run("test_one", "test_two")
return rows
        """
    )
    rows = project.run("-n1")
    for start in (0, 3, 6):
        assert [
            (row["outcome"], row["started"]) for row in rows[start : start + 3]
        ] == [
            ("crashed", True),  # passed, but its process was not checked any more
            ("crashed", True),
            ("lost", True),
        ]
    assert outcomes(rows[9:]) == {"test_one": "passed", "test_two": "passed"}
    assert "worker gw0 died" in project.output


def test_workers_that_keep_dying_end_the_run(project):
    project.tests(
        """
        import os, signal, time
        def test_kills_worker():
            open(f"signal-{os.getppid()}-{signal.SIGKILL:d}", "w").close()
            time.sleep(60)
        """
    )
    project.drive(
        """
from pytest_evo.errors import WorkersLost
try:
    for number in range(100):
        await driver.run("test_kills_worker")
except WorkersLost as error:
    return [{"number": number, "text": str(error)}]
        """
    )
    (row,) = project.run("-n1", status=17, environment={"EVO_STATUS": "17"})
    assert 3 < row["number"] < 10
    assert "not one rollout was finished" in row["text"]


def test_workers_that_die_while_collecting_end_the_run(project):
    project.tests("import os; os.environ.get('PYTEST_XDIST_WORKER') and os._exit(9)")
    project.drive("return []")
    assert project.run("-n1", status=4) is None
    assert "workers were lost" in project.output


def test_silent_worker_is_killed(project):
    project.tests(
        """
        import os, signal, time
        def test_stops_worker():
            time.sleep(0.3)
            open(f"signal-{os.getppid()}-{signal.SIGSTOP:d}", "w").close()
            time.sleep(60)
        def test_one(): pass
        """
    )
    project.drive(
        """
driver.pool.set_timeouts({}, 1.0)
return await driver.run("test_stops_worker") + await driver.run("test_one")
        """
    )
    rows = project.run("-n1", environment={"EVO_GRACE": "1"})
    assert outcomes(rows) == {"test_stops_worker": "crashed", "test_one": "passed"}
    assert "is silent" in project.output


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "no tests were collected"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        (
            "import os, pytest\n"
            "@pytest.mark.parametrize('n', [os.environ['PYTEST_XDIST_WORKER']])\n"
            "def test_one(n): pass",
            "only gw1: test_it.py::test_one[gw1]",
        ),
    ],
    ids=["empty", "broken", "different"],
)
def test_unusable_collection_is_a_usage_error(project, source, words):
    project.tests(source)
    project.drive("return [1]")
    assert project.run("-n2", status=4) is None
    assert words in project.output


def test_order_of_collection_does_not_matter(project):
    project.tests(
        """
        import pytest
        @pytest.mark.parametrize("n", {"a", "b", "c", "d", "e", "f", "g"})
        def test_one(n): assert n != "c"
        """
    )
    project.drive(
        """
rows = [row for case in driver.cases() for row in await driver.run(case)]
return rows
        """
    )
    rows = project.run("-n2")
    failed = [row["case"] for row in rows if row["outcome"] == "failed"]
    assert failed == ["test_it.py::test_one[c]"]
    assert len(rows) == 7


@pytest.mark.parametrize("way", ["-n0", "-n1"])
def test_errors_of_the_engine_reach_the_person(project, way):
    project.tests("def test_one(): pass")
    project.drive(
        "from pytest_evo.errors import BudgetProblem\n"
        'raise BudgetProblem("type --budget-rollouts=9")'
    )
    project.run(way, status=4)
    assert "ERROR: type --budget-rollouts=9" in project.output


def test_exclusive_group_is_alone_over_all_workers(project):
    project.tests(
        """
        import os, pytest, time
        @pytest.mark.parametrize("n", range(6))
        @pytest.mark.xdist_group("database")
        def test_one(n, tmp_path_factory):
            os.mkdir(os.environ["LOCK"])
            time.sleep(0.1)
            os.rmdir(os.environ["LOCK"])
        """
    )
    project.drive(
        """
runs = [driver.run(case) for case in driver.cases()]
return [row for rows in await asyncio.gather(*runs) for row in rows]
        """
    )
    rows = project.run(
        "-n2", "--dist=loadgroup", environment={"LOCK": str(project.path / "lock")}
    )
    assert {row["outcome"] for row in rows} == {"passed"}
    assert len(rows) == 6


def test_worker_tells_what_speaks_against_forking(project):
    project.tests(
        """
        import threading, time
        from pathlib import Path
        TEXT = (Path(__file__).parent / "artifact" / "word.txt").read_text()
        rest = lambda: time.sleep(60)
        threading.Thread(target=rest, daemon=True, name="busy").start()
        def test_one(): pass
        """
    )
    project.drive("return [driver.pool.hellos[0]]")
    (hello,) = project.run("-n1")
    assert hello["threads"] == ["busy"]
    assert hello["reach"]["files"] == ["word.txt"]


def test_cases_that_no_worker_knows_are_missing(project):
    project.tests("def test_one(): pass")
    project.drive('return await driver.run("test_it.py::test_gone", "test_one")')
    rows = project.run("-n1")
    assert outcomes(rows) == {"test_gone": "missing", "test_one": "passed"}
    assert json.dumps(rows)


@pytest.mark.parametrize("way", ["-n0", "-n1"])
def test_only_collecting_runs_no_engine(project, way):
    project.tests("def test_one(): pass")
    project.drive("return [1]")
    assert project.run(way, "--collect-only") is None
