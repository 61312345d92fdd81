from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from evolve_project import comparable
from evolve_project import environment
from evolve_project import evolve
from evolve_project import evolve_command
from evolve_project import executed
from evolve_project import make_project
from evolve_project import records
from evolve_project import run_directory

pytestmark = pytest.mark.slow
FEW = ("--budget-iterations=4", "-n", "2")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_run_improves_the_artifact_and_writes_all_reports(
    pytester: pytest.Pytester, workers: str
) -> None:
    root = make_project(pytester)
    before = (root / "art" / "level.txt").read_bytes()
    done = evolve(root, "--budget-rollouts=150", "-n", workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert executed(root) <= 150
    stop = records(root, "stop")[-1]
    assert stop["rollouts"] == executed(root) == len(records(root, "rollout"))
    assert stop["winner"] != "c0000"
    assert (root / "art" / "level.txt").read_bytes() == before
    reports = root / "evo-reports"
    for name in ("junit.xml", "leaderboard.xml", "summary.md", "metrics.txt"):
        assert (reports / name).stat().st_size > 0
    winner = reports / "candidates" / f"TEST-{stop['winner']}.xml"
    suites = ElementTree.parse(winner).getroot()
    assert suites.findall(".//testcase")
    assert "in-sample" in done.stdout
    assert "next: pytest-evo apply" in done.stdout


def test_workers_and_this_process_find_the_same(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    journals = []
    for workers in ("0", "0"):
        evolve(root, "--budget-iterations=4", "-n", workers)
        journals.append(comparable(records(root)))
    assert journals[0] == journals[1]


def test_slots_on_workers_do_not_depend_on_timing(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    journals = []
    for _ in range(2):
        done = evolve(root, "--budget-iterations=6", "-n", "2", "--evo-slots=2")
        assert done.returncode == 0, done.stdout + done.stderr
        journals.append(comparable(records(root)))
    assert journals[0] == journals[1]


def test_killed_controller_resumes_to_the_same_end(pytester: pytest.Pytester) -> None:
    root = make_project(pytester, nap=0.02)
    options = ("--budget-iterations=5", "-n", "2", "--evo-slots=2")
    evolve(root, *options)
    expected = [
        (row["iteration"], row["child"], row["accepted"], row["population"])
        for row in records(root, "iteration")
    ]
    (root / "executed.log").unlink()
    resume: tuple[str, ...] = ()
    for seconds in (2.5, 3.5, 3.0):
        process = subprocess.Popen(
            evolve_command(*options, *resume),
            cwd=root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if len(list((root / ".evo" / "runs").iterdir())) > 1:
            resume = ("--evo-resume=last",)
    done = evolve(root, *options, *resume)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [
        (row["iteration"], row["child"], row["accepted"], row["population"])
        for row in records(root, "iteration")
    ]
    assert found == expected
    finished = [row for row in records(root, "rollout") if row["outcome"] != "lost"]
    keys = {(row["tree"], row["case"], row["repeat"]) for row in finished}
    assert len(keys) == len(finished)
    assert executed(root) <= len(records(root, "rollout"))


def test_first_interrupt_ends_softly_and_the_run_goes_on_later(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester, nap=0.1, steps=60)
    process = subprocess.Popen(
        evolve_command("--budget-iterations=40", "-n", "2"),
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    wait_for_rollouts(root, 45)  # past the baseline
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2, out
    assert "--evo-resume=" in out
    assert not records(root, "stop")[-1]["complete"]
    (root / "art" / "by_hand.txt").write_text("new")
    done = evolve(root, "--evo-resume=last", "--budget-iterations=4", "-n", "2")
    assert done.returncode == 0, done.stdout
    assert "warning: art has changed since the run began (by_hand.txt)" in done.stdout
    assert records(root, "stop")[-1]["complete"]
    again = evolve(root, "--evo-resume=last", "-n", "2")
    assert again.returncode == 0
    assert "has ended already" in again.stdout


def wait_for_rollouts(root: Path, count: int) -> None:
    for _ in range(600):
        if executed(root) >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"only {executed(root)} rollouts ran")


def test_second_controller_on_a_run_is_refused_by_pid(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester, nap=0.5, steps=60)
    process = subprocess.Popen(
        evolve_command("--budget-iterations=40", "-n", "2"),
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        wait_for_rollouts(root, 5)
        done = evolve(root, "--evo-resume=last", "-n", "2")
        assert done.returncode == 4, done.stdout + done.stderr
        assert str(process.pid) in done.stdout + done.stderr
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("budget", [0, 1, 11, 12])
def test_budget_below_the_baseline_is_refused_before_anything_runs(
    pytester: pytest.Pytester, budget: int
) -> None:
    root = make_project(pytester)
    done = evolve(root, f"--budget-rollouts={budget}", "-n", "0")
    assert done.returncode == 4
    assert executed(root) == 0
    assert "--budget-rollouts" in done.stdout + done.stderr


def test_cases_that_die_or_hang_cost_only_themselves(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "test_bad.py").write_text(
        "import os, time\n"
        "def test_dies(evo_artifact):\n    os._exit(0)\n"
        "def test_hangs(evo_artifact):\n    time.sleep(600)\n"
    )
    done = evolve(root, *FEW, "--evo-timeout=2")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = records(root, "cases")[0]
    assert {row["id"].split("[")[0] for row in cases["cases"]} == {
        "test_level.py::test_level"
    }
    reasons = dict(cases["excluded"])
    assert reasons["test_bad.py::test_dies"] == "crashed at the baseline"
    assert reasons["test_bad.py::test_hangs"] == "timeout at the baseline"


def test_artifact_that_is_read_while_collecting_is_judged_anew(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "test_level.py").write_text(
        "from pathlib import Path\nimport pytest\n"
        "LEVEL = int((Path(__file__).parent / 'art' / 'level.txt').read_text())\n"
        "@pytest.mark.parametrize('n', range(10))\n"
        "def test_level(n):\n    assert n % 5 + 1 <= LEVEL\n"
    )
    done = evolve(root, "--budget-iterations=3", "-n", "2", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "isolation")[0]["mode"] in {"fresh", "workspace"}
    assert records(root, "stop")[-1]["winner"] != "c0000", done.stdout


def test_suite_that_never_reads_the_artifact_stops_the_run(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "test_level.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(6))\n"
        "def test_n(n):\n    assert n % 2\n"
    )
    done = evolve(root, *FEW)
    assert done.returncode == 4
    assert "no case reaches the artifact 'art'" in done.stdout + done.stderr


def test_apply_writes_the_winner_and_refuses_a_changed_tree(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    done = evolve(root, *FEW, "--evo-apply")
    assert done.returncode == 0, done.stdout + done.stderr
    winner = records(root, "stop")[-1]["winner"]
    kept = run_directory(root) / "candidates" / winner / "artifact" / "level.txt"
    assert (root / "art" / "level.txt").read_text() == kept.read_text()
    (root / "art" / "level.txt").write_text("77")
    refused = subprocess.run(
        [sys.executable, "-m", "pytest_evo", "apply"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert (root / "art" / "level.txt").read_text() == "77"
    again = evolve(root, "--evo-resume=last", "-n", "0").stdout
    assert "art has changed since the run began (level.txt, " in again
    assert "next: pytest-evo diff" in again


def test_dry_run_says_what_it_would_cost_and_runs_nothing(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    done = evolve(root, "--evo-dry-run", "--budget-rollouts=300", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "at most 300 rollouts" in done.stdout
    assert executed(root) == 0
    assert not (root / ".evo").exists()


def test_require_gain_exits_with_1_where_nothing_better_was_found(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "proposals.py").write_text(
        "def propose(request):\n"
        "    path = request.workspace / 'artifact' / 'touched.txt'\n"
        "    path.write_text(str(request.rng.random()))\n"
        "    return 'no use'\n"
    )
    assert evolve(root, *FEW).returncode == 0
    assert evolve(root, *FEW, "--evo-require-gain").returncode == 1


@pytest.mark.parametrize(
    ("split", "code"),
    [
        ("test = ['*[[]0]', '*[[]1]', '*[[]2]', '*[[]3]']\nval = ['*[[][6789]]']", 1),
        ("train = ['*1[0-9]]', '*[[][0-5]]']\nval = ['*[[][6789]]']", 0),
    ],
    ids=["one-of-four-test-cases", "in-sample"],
)
def test_require_gain_wants_more_than_noise_where_a_test_split_can_tell(
    pytester: pytest.Pytester, split: str, code: int
) -> None:
    root = make_project(pytester, count=18)
    with (root / "pyproject.toml").open("a") as file:
        file.write(f"batch = 14\n[tool.pytest_evo.split]\n{split}\n")
    (root / "proposals.py").write_text(
        "def propose(request):\n"
        "    (request.workspace / 'artifact' / 'level.txt').write_text('1')\n"
        "    return 'up'\n"
    )
    done = evolve(root, *FEW, "--evo-require-gain")
    assert "-> winner" in done.stdout, done.stdout + done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    assert ("gain may be noise" in done.stdout) is bool(code)


def test_users_junitxml_receives_the_winners_cases(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    done = evolve(root, *FEW, "--junitxml=own.xml")
    assert done.returncode == 0, done.stdout + done.stderr
    names = {
        case.get("name")
        for case in ElementTree.parse(root / "own.xml").getroot().iter("testcase")
    }
    winner = records(root, "stop")[-1]["winner"]
    ran = {
        row["case"].split("::")[1]
        for row in records(root, "rollout")
        if row["candidate"] == winner
    }
    assert names == ran


def test_stop_options_are_ignored_with_one_line(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    done = evolve(root, *FEW, "-x")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("-x/--maxfail ignored") == 1


def test_observers_in_a_conftest_hear_of_the_run(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    (root / "conftest.py").write_text(
        "import json\n"
        "def note(**row):\n"
        "    with open('heard.jsonl', 'a') as file:\n"
        "        file.write(json.dumps(row) + '\\n')\n"
        "def pytest_evo_candidate_created(candidate):\n"
        "    note(hook='created', id=candidate.id)\n"
        "def pytest_evo_candidate_evaluated(candidate, rollouts):\n"
        "    note(hook='evaluated', id=candidate.id, rollouts=len(rollouts))\n"
        "def pytest_evo_chain_finished(nodes, accepted):\n"
        "    note(hook='chain', nodes=len(nodes), accepted=accepted)\n"
        "def pytest_evo_run_finished(run, winner, reason):\n"
        "    note(hook='finished', reason=reason, winner=winner.id)\n"
    )
    done = evolve(root, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    heard = [json.loads(row) for row in (root / "heard.jsonl").read_text().splitlines()]
    created = [row["id"] for row in heard if row["hook"] == "created"]
    recorded = [row["id"] for row in records(root, "candidate") if row["parent"]]
    assert sorted(created) == sorted(recorded)
    assert all(row["rollouts"] for row in heard if row["hook"] == "evaluated")
    chains = [row for row in heard if row["hook"] == "chain"]
    closed = [row for row in records(root, "iteration") if row["child"]]
    assert sum(row["accepted"] for row in chains) == len(closed)
    assert heard[-1]["hook"] == "finished"


def test_check_of_the_project_refuses_a_candidate(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    (root / "conftest.py").write_text(
        "def pytest_evo_check_artifact(path):\n"
        "    return 'level must stay even' if int((path / 'level.txt').read_text()) % 2"
        " else None\n"
    )
    evolve(root, *FEW)
    refusals = [row["refusal"] for row in records(root, "proposal") if row["refusal"]]
    assert refusals
    assert all("level must stay even" in text for text in refusals)


def test_changed_suite_is_not_mixed_into_a_resumed_run(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    evolve(root, "--budget-iterations=1", "-n", "0")
    path = root / "test_level.py"
    path.write_text(path.read_text().replace("n % 6 + 1", "n % 6 + 2"))
    done = evolve(root, "--evo-resume=last", "--budget-iterations=9", "-n", "0")
    assert done.returncode == 4
    assert "0 cases gone and 12 changed" in done.stdout + done.stderr
