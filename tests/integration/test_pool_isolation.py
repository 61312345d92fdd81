from __future__ import annotations

import json

import pytest
from pool_project import alive
from pool_project import outcomes
from pool_project import project
from pool_project import WAYS

__all__ = ["project"]


def test_candidates_reach_the_tests_and_nothing_is_left_of_them(project):
    other = project.pytester.mkdir("other")
    (other / "word.txt").write_text("left\n")
    (other / "more").mkdir()
    project.tests(
        """
        import random
        from pathlib import Path
        HERE = Path(__file__).parent
        STATE = []
        def test_word(evo_artifact):
            assert (evo_artifact / "word.txt").read_text() == "left\\n"
        def test_real_path(evo_trace):
            assert (HERE / "artifact/word.txt").read_text() == "left\\n"
        def test_draw(evo_score):
            STATE.append(1)
            assert STATE == [1]
            evo_score(random.random())
        def test_writes(evo_artifact): (evo_artifact / "word.txt").write_text("mine")
        """
    )
    project.drive(
        """
left = driver.add(driver.root / "other")
rows = await driver.run("test_word")
rows += await driver.run("test_word", tree=left)
mounted = driver.pool.hellos[0].mount is None
if mounted:
    driver.pool.set_isolation("fork", True)
    rows += await driver.run("test_real_path", tree=left)
    driver.pool.set_isolation("fork", False)
rows += await driver.run("test_draw") + await driver.run("test_draw")
rows += await driver.run("test_draw", repeat=1)
rows += await driver.run("test_writes", "test_word", tree=left)
rows += await driver.run("test_word", tree=left)
return [{"mounted": mounted}, *rows]
        """
    )
    first, *rows = project.run("-n1")
    assert [row["outcome"] for row in rows[:2]] == ["failed", "passed"]
    if first["mounted"]:
        assert rows.pop(2)["outcome"] == "passed"
        assert (project.path / "artifact/word.txt").read_text() == "right\n"
    draws = [row["score"] for row in rows[2:5]]
    assert draws[0] == draws[1] != draws[2]
    # who writes is told on; the next case has a copy of its own
    assert [row["outcome"] for row in rows[5:]] == ["passed", "passed", "passed"]
    assert ["word.txt" in (row["violation"] or "") for row in rows[5:]] == [
        True,
        False,
        False,
    ]


def test_candidate_cannot_forge_results(project):
    project.tests(
        """
        import json, os
        def test_forges():
            line = json.dumps({"v": 1, "kind": "rollout", "id": ""}).encode()
            for descriptor in range(3, 5000):
                try:
                    os.write(descriptor, len(line).to_bytes(4, "big") + line * 9)
                except OSError:
                    pass
            assert False
        def test_after(): pass
        """
    )
    project.drive(
        """
rows = await driver.run("test_forges", "test_after")
return rows + await driver.run("test_after")
        """
    )
    rows = project.run("-n1")
    assert rows[0]["outcome"] == "crashed"
    assert "result line" in rows[0]["violation"]
    assert rows[1]["started"] is False
    assert rows[2]["outcome"] == "passed"


@WAYS
def test_many_in_flight_keep_their_output_apart(project, way):
    project.tests(
        """
        import os, pytest, sys, time
        @pytest.mark.parametrize("n", range(150))
        def test_one(n):
            print(f"out-{n}-")
            os.write(2, f"err-{n}-".encode())
            time.sleep(0.1)
        """
    )
    project.drive(
        """
runs = [driver.run(case) for case in driver.cases()]
return [row for rows in await asyncio.gather(*runs) for row in rows]
        """
    )
    rows = project.run(way, environment={"EVO": '{"concurrency": 64}'})
    assert len(rows) == 150
    for row in rows:
        number = row["case"].partition("[")[2][:-1]
        said = dict(row["detail"]["phases"][1]["sections"])
        assert said["Captured stdout call"] == f"out-{number}-\n"
        assert said["Captured stderr call"] == f"err-{number}-"


def test_limits_and_floods_stay_with_their_test(project):
    project.tests(
        """
        import resource, sys
        def test_descriptors():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            kept = [open("/dev/null") for _ in range(100)]
        def test_memory():
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, hard))
            blocks = [bytearray(1 << 26) for _ in range(100)]
        def test_flood():
            for _ in range(30): print("x" * (1 << 20))
            assert False, "y" * (1 << 24)
        def test_surrogate(): assert not "\\ud800\\0"
        def test_after(): open(__file__).close()
        """
    )
    project.drive(
        """
names = [case.partition("::")[2] for case in driver.cases()]
rows = [row for name in names for row in await driver.run(name)]
return rows + await driver.run(*names[2:])
        """
    )
    rows = project.run("-n1")
    wanted = {
        "test_descriptors": "failed",
        "test_memory": "failed",
        "test_flood": "failed",
        "test_surrogate": "failed",
        "test_after": "passed",
    }
    assert outcomes(rows[:5]) == wanted
    assert [row["outcome"] for row in rows[5:]] == ["failed", "failed", "passed"]
    assert len(json.dumps(rows[2])) < 2_000_000


def test_cancelled_request_is_lost_and_frees_its_place(project):
    project.tests(
        """
        import time
        def test_long(): time.sleep(60)
        def test_one(): pass
        """
    )
    project.drive(
        """
async def long(request):
    return [row async for row in driver.pool.submit(request)]
running, waiting = driver.request("test_long", "test_one"), driver.request("test_one")
tasks = [asyncio.create_task(long(running)), asyncio.create_task(long(waiting))]
await asyncio.sleep(1)
await driver.pool.cancel(waiting.id)
await driver.pool.cancel(running.id)
rows = [row for task in tasks for row in await task]
return rows + await driver.run("test_one")
        """
    )
    rows = project.run("-n1")
    assert [(row["outcome"], row["started"]) for row in rows] == [
        ("lost", True),
        ("lost", False),
        ("lost", False),
        ("passed", True),
    ]


WARM = """
import os, pytest
from pathlib import Path
LOG = Path(__file__).parent / "log"
def note(text):
    with LOG.open("a") as file: file.write(text + "\\n")
@pytest.fixture(scope="session")
def index():
    note("up")
    yield {"built": os.getpid()}
    note("down")
@pytest.fixture(scope="session")
def cold():
    yield
    note("cold down")
@pytest.fixture(scope="session")
def reads():
    return (Path(__file__).parent / "artifact/word.txt").read_text()
def test_one(index, cold): assert index["built"] != os.getpid()
def test_two(index, reads): pass
"""


@WAYS
def test_warm_fixture_is_set_up_once_per_worker(project, way):
    project.tests(WARM)
    project.drive(
        """
rows = await driver.run("test_one", "test_two") + await driver.run("test_one")
return rows
        """
    )
    environment = {"EVO": '{"warm_fixtures": ["index"]}'}
    rows = project.run("-n1" if way == "-n2" else way, environment=environment)
    assert {row["outcome"] for row in rows} == {"passed"}
    lines = (project.path / "log").read_text().split("\n")
    assert lines == ["up", "cold down", "cold down", "down", ""]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reads", "reads word.txt of the artifact"),
        ("inbox", "no test uses a fixture 'inbox'"),
    ],
)
def test_unfit_warm_fixture_is_refused(project, name, words):
    project.tests(WARM)
    project.drive("return []")
    settings = json.dumps({"warm_fixtures": [name]})
    project.run("-n1", status=4, environment={"EVO": settings})
    assert words in project.output


@pytest.mark.parametrize("mode", ["fresh", "workspace"])
def test_new_interpreters_are_watched_like_forks(project, mode):
    project.tests(
        """
        import os, signal, subprocess, sys, time
        from pathlib import Path
        WORD = (Path(__file__).parent / "artifact/word.txt").read_text()
        def test_word(evo_artifact):
            assert (evo_artifact / "word.txt").read_text() == "left\\n"
        def test_kill(evo_trace): os.kill(os.getpid(), signal.SIGKILL)
        def test_hangs(evo_trace):
            nap = [sys.executable, "-c", "import time; time.sleep(300)"]
            pid = subprocess.Popen(nap, start_new_session=True).pid
            Path(os.environ["PIDS"]).write_text(str(pid))
            time.sleep(60)
        """
    )
    other = project.pytester.mkdir("other")
    (other / "word.txt").write_text("left\n")
    project.drive(
        f"""
driver.pool.set_isolation("{mode}", False)
driver.pool.set_timeouts({{driver.case("test_hangs"): 1.0}})
left = driver.add(driver.root / "other")
rows = await driver.run("test_word") + await driver.run("test_word", tree=left)
rows += await driver.run("test_hangs", "test_word", "test_kill", tree=left)
return rows + await driver.run("test_it.py::test_gone")
        """
    )
    pids = project.path / "pids"
    rows = project.run("-n1", environment={"PIDS": str(pids)})
    assert [row["outcome"] for row in rows] == [
        "failed",
        "passed",
        "timeout",
        "passed",
        "crashed",
        "missing",
    ]
    assert "test_hangs" in json.dumps(rows[2]["detail"]["phases"])
    assert not alive(int(pids.read_text()))
