from __future__ import annotations

import json

from pool_project import outcomes
from pool_project import project
from pool_project import WAYS

__all__ = ["project"]


@WAYS
def test_rollouts_come_back_whole(project, way):
    project.tests(
        """
        import warnings
        warnings.warn("while collecting")
        def test_good(evo_artifact, evo_score, evo_trace):
            print("hello", (evo_artifact / "word.txt").read_text())
            evo_trace("step", n=1)
            evo_score(0.5)
            warnings.warn("careful")
        def test_bad(evo_trace):
            assert 1 == 2
        """
    )
    project.drive('return await driver.run("test_bad", "test_good")')
    bad, good = project.run(way)
    assert (good["outcome"], good["score"]) == ("passed", 0.5)
    assert (bad["outcome"], bad["score"]) == ("failed", 0.0)
    assert good["reach"]["files"] == ["word.txt"]
    assert bad["reach"]["files"] == []
    assert "hello right" in json.dumps(good["detail"]["phases"])
    assert good["detail"]["steps"] == [{"name": "step", "data": {"n": 1}}]
    assert "careful" in good["detail"]["warnings"][0]
    assert "assert 1 == 2" in json.dumps(bad["detail"]["phases"])
    assert good["violation"] is None
    assert good["started"]
    assert "2 rollouts" in project.output


@WAYS
def test_deaths_are_told_apart_and_end_only_themselves(project, way):
    project.tests(
        """
        import ctypes, os, signal, sys, time
        import pytest
        pytestmark = pytest.mark.evo
        def test_before(): pass
        def test_exit_zero(evo_usage):
            evo_usage(input_tokens=7, usd=0.5)
            os._exit(0)
        def test_kill(evo_usage):
            evo_usage(input_tokens=7_000, usd=0.125)
            if os.fork() == 0:
                evo_usage(input_tokens=1)
                os._exit(0)
            os.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        def test_segv(): ctypes.string_at(0)
        def test_exec(): os.execv("/bin/true", ["true"])
        def test_sys_exit(): sys.exit(0)
        def test_pytest_exit(): pytest.exit("done", returncode=0)
        def test_interrupt(): raise KeyboardInterrupt
        def test_hangs(evo_usage):
            evo_usage(input_tokens=5)
            evo_usage(input_tokens=2)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            print("tick", flush=True)
            time.sleep(600)
        def test_spins(): (10 ** 9) ** (10 ** 8)
        def test_fork_comes_back():
            if os.fork() == 0:
                return
            time.sleep(0.3)
        def test_after(): pass
        """
    )
    project.drive(
        """
limits = {driver.case(name): 1.0 for name in ("test_hangs", "test_spins")}
driver.pool.set_timeouts(limits)
names = [case.partition("::")[2] for case in driver.cases()]
rows = [row for name in names for row in await driver.run(name)]
batch = await driver.run("test_before", "test_hangs", "test_after")
batch += await driver.run("test_exit_zero", "test_sys_exit")
return rows + batch
        """
    )
    rows = project.run(way)
    single, batch = rows[:12], rows[12:]
    assert outcomes(single) == {
        "test_before": "passed",
        "test_exit_zero": "crashed",
        "test_kill": "crashed",
        "test_segv": "crashed",
        "test_exec": "crashed",
        "test_sys_exit": "failed",
        "test_pytest_exit": "failed",
        "test_interrupt": "failed",
        "test_hangs": "timeout",
        "test_spins": "timeout",
        "test_fork_comes_back": "passed",
        "test_after": "passed",
    }
    spent = {row["case"].partition("::")[2]: row["usage"] for row in single}
    assert spent["test_exit_zero"]["usd"] == 0.5
    assert spent["test_kill"]["input_tokens"] == 7_000
    assert spent["test_hangs"]["calls"] == 2
    assert (spent["test_hangs"]["input_tokens"], spent["test_hangs"]["usd"]) == (
        7,
        None,
    )
    assert spent["test_segv"]["calls"] == 0
    said = {row["case"][-9:]: row["detail"]["phases"][0]["message"] for row in single}
    assert "exit status 0" in said["exit_zero"]
    assert "SIGKILL" in said["test_kill"]
    assert "SIGSEGV" in said["test_segv"]
    assert "Segmentation fault" in json.dumps(single[3]["detail"]["phases"])
    assert "test_spins" in json.dumps(single[9]["detail"]["phases"])  # where it hung
    assert outcomes(batch[:3]) == {
        "test_before": "passed",
        "test_hangs": "timeout",
        "test_after": "passed",
    }
    assert [(row["outcome"], row["started"]) for row in batch[3:]] == [
        ("crashed", True),
        ("lost", False),
    ]


@WAYS
def test_nothing_of_a_test_outlives_it(project, way):
    project.tests(
        """
        import os, subprocess, sys, threading, time
        NAP = "import time; time.sleep(100)"
        def nap(**options):
            process = subprocess.Popen([sys.executable, "-c", NAP], **options)
            note(process.pid)
            return process
        def note(pid):
            with open(os.environ["PIDS"], "a") as file: file.write(f"{pid}\\n")
        def test_thread(): threading.Thread(target=time.sleep, args=(100,)).start()
        def test_child(): nap()
        def test_own_session():
            code = "import os\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
            code += "open(os.environ['PIDS'], 'a').write(f'{os.getpid()}\\\\n')\\n"
            subprocess.run([sys.executable, "-c", code + NAP])
            time.sleep(0.5)
        def test_crashes_with_children():
            nap(start_new_session=True)
            os._exit(3)
        def test_hangs_on_child():
            nap(start_new_session=True).wait()
        """
    )
    project.drive(
        """
import os
driver.pool.set_timeouts({driver.case("test_hangs_on_child"): 1.0})
names = [case.partition("::")[2] for case in driver.cases()]
async def one(name):
    return (await driver.run(name))[0]
rows = await asyncio.gather(*map(one, names))
left = []
for pid in open(os.environ["PIDS"]).read().split():
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        pass
    else:
        state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
        left += [pid] if state != "Z" else []
return [*rows, {"left": left}]
        """
    )
    environment = {"PIDS": str(project.path / "pids"), "EVO": '{"concurrency": 2}'}
    rows = project.run(way, environment=environment)
    assert outcomes(rows[:5]) == {
        "test_thread": "passed",
        "test_child": "passed",
        "test_own_session": "passed",
        "test_crashes_with_children": "crashed",
        "test_hangs_on_child": "timeout",
    }
    assert len((project.path / "pids").read_text().split()) == 4
    assert rows[5]["left"] == []
