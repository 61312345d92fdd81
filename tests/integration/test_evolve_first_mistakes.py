"""What a first run gets wrong, told early and in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from evolve_project import evolve
from evolve_project import executed
from evolve_project import make_project
from evolve_project import records
from evolve_project import run_directory
from gate_project import gate

pytestmark = pytest.mark.slow
FEW = ("--budget-iterations=1", "-n", "0")


def refused(root: Path, *options: str) -> str:
    """What is said by a session that ends with exit code 4."""
    done = evolve(root, *options)
    said = done.stdout + done.stderr
    assert done.returncode == 4, said
    assert "INTERNALERROR" not in said
    assert "Traceback (most recent" not in said
    return said


def test_proposer_that_always_raises_ends_with_its_error_and_the_traceback(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hush-hush-hush-1")
    root = make_project(pytester)
    (root / "proposals.py").write_text(
        "import os\n"
        "def propose(request):\n"
        "    raise KeyError('oops ' + os.environ['SOME_API_KEY'])\n"
    )
    said = refused(root, *FEW)
    assert "no proposal came through" in said
    assert "KeyError: 'oops" in said
    kept = run_directory(root) / "proposer" / "c0001" / "traceback.txt"
    assert str(kept) in said.replace("\n", "")
    text = kept.read_text()
    assert 'proposals.py", line 3, in propose' in text
    assert "hush-hush-hush-1" not in text + said
    journal = (run_directory(root) / "journal.jsonl").read_text()
    assert "hush-hush-hush-1" not in journal
    assert records(root, "stop")[-1]["reason"] == "the proposer failed"


def test_search_ends_softly_when_every_setting_was_tried(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "art" / "level.txt").unlink()
    (root / "art" / "level.toml").write_text("level = 1\nother = 1\n")
    (root / "pyproject.toml").write_text(
        '[tool.pytest_evo]\nartifact = "art"\nobjective = "climb"\n'
        'proposer = "search"\n'
        '[[tool.pytest_evo.file]]\npath = "level.toml"\nkind = "config"\n'
        "[[tool.pytest_evo.file.knob]]\n"
        'key = "level"\ntype = "int"\nlow = 0\nhigh = 3\n'
        "[[tool.pytest_evo.file.knob]]\n"
        'key = "other"\ntype = "int"\nlow = 0\nhigh = 1\n'
    )
    (root / "test_level.py").write_text(
        "import tomllib, pytest\n"
        "@pytest.mark.parametrize('n', range(12))\n"
        "def test_level(n, evo_artifact):\n"
        "    found = tomllib.loads((evo_artifact / 'level.toml').read_text())\n"
        "    assert found['level'] >= n % 6 + 1\n"
    )
    done = evolve(root, "-n", "0", "--budget-rollouts=900")
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "stop")[-1]["reason"] == "proposer exhausted"
    tried = [row for row in records(root, "candidate") if row["id"] != "c0000"]
    assert len({row["tree"] for row in tried}) == len(tried) == 7
    assert not any(row["refusal"] for row in records(root, "proposal")[:-1])


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("test_level.py::nope", "not found: "),
        ("test_levels.py", "file or directory not found: test_levels.py"),
    ],
)
def test_mistyped_test_is_not_found(
    pytester: pytest.Pytester, target: str, words: str, workers: str
) -> None:
    root = make_project(pytester)
    assert words in refused(root, target, FEW[0], "-n", workers)
    assert executed(root) == 0
    assert not (root / ".evo").exists()


def test_mistyped_test_of_a_gate_is_not_found(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    assert gate(root, "--evo-baseline-update", "-n", "0").returncode == 0
    done = gate(root, "--evo-gate=baseline", "test_level.py::nope", "-n", "2")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "not found: " in done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("hook", "ending"),
    [
        ("pytest_sessionstart(session)", "raise pytest.UsageError('no server')"),
        ("pytest_sessionstart(session)", "pytest.exit('no server')"),
        ("pytest_collect_file(file_path)", "pytest.exit('no server', 7)"),
    ],
)
def test_workers_that_all_leave_before_they_have_collected_say_why(
    pytester: pytest.Pytester, hook: str, ending: str
) -> None:
    root = make_project(pytester)
    (root / "conftest.py").write_text(
        "import os, pytest\n"
        f"def {hook}:\n"
        "    if 'PYTEST_XDIST_WORKER' in os.environ:\n"
        f"        {ending}\n"
    )
    done = evolve(root, FEW[0], "-n", "2")  # xdist shows how its workers ended
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no server" in done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--evo-reports={root}/taken", "no reports can be written into"),
        ("--evo-reports=/proc/evo", "--evo-reports=DIR"),
        ("--evo-run-dir={root}/taken/runs", "--evo-run-dir=DIR"),
    ],
)
def test_places_that_cannot_be_written_are_told_before_anything_starts(
    pytester: pytest.Pytester, option: str, words: str, workers: str
) -> None:
    root = make_project(pytester)
    (root / "taken").write_text("a file")
    (root / "test_level.py").write_text(
        "from pathlib import Path\n" + "Path(__file__).with_name('began').touch()\n"
    )
    assert words in refused(root, FEW[0], option.format(root=root), "-n", workers)
    assert not (root / "began").exists()
    assert not (root / ".evo").exists()
    assert not (root / "evo-reports").exists()


def test_gate_tells_before_it_starts_that_no_reports_can_be_written(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    done = gate(root, "--evo-gate=baseline", "--evo-reports=/proc/evo", "-n", "2")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no reports can be written into /proc/evo" in done.stderr
    assert executed(root) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("score_from = 3\n", "score_from"),
        ('strategy = "maraa"\n', "maraa"),
        ('acceptance = "nothing.of_that:Name"\n', "nothing.of_that"),
        (
            '[[tool.pytest_evo.file]]\npath = "level.txt"\nkind = "config"\n'
            '[[tool.pytest_evo.file.knob]]\nkey = "gone"\ntype = "bool"\n',
            "level.txt",
        ),
    ],
)
def test_settings_that_cannot_work_are_told_before_anything_starts(
    pytester: pytest.Pytester, more: str, words: str
) -> None:
    root = make_project(pytester)
    with (root / "pyproject.toml").open("a") as file:
        file.write(more)
    (root / "test_level.py").write_text(
        "from pathlib import Path\n" + "Path(__file__).with_name('began').touch()\n"
    )
    assert words in refused(root, FEW[0], "-n", "2")
    assert not (root / "began").exists()
    assert not (root / ".evo").exists()


def test_result_is_shown_also_where_the_reports_cannot_be_written(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "proposals.py").write_text(
        "from pathlib import Path\n"
        "def propose(request):\n"
        "    Path('evo-reports').write_text('in the way')\n"
        "    level = request.workspace / 'artifact' / 'level.txt'\n"
        "    level.write_text('99')\n"
        "    return 'all of them'\n"
    )
    said = refused(root, *FEW)
    assert "evo-reports" in said.rpartition("ERROR: ")[2]
    assert "ended after 1 iteration: budget: iterations" in said
    assert "c0001 *" in said


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        ("evo_score('recall', 0.5)", "they gave 'recall'"),
        ("evo_score('secret', 0.5, audit=True)", "gave any metric"),
        ("pass", "gave any metric"),
    ],
)
def test_score_from_that_no_test_gives_stops_at_the_baseline(
    pytester: pytest.Pytester, gives: str, words: str
) -> None:
    root = make_project(pytester)
    with (root / "pyproject.toml").open("a") as file:
        file.write('score_from = "recal"\n')
    (root / "test_level.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(12))\n"
        "def test_level(n, evo_artifact, evo_score):\n"
        "    level = int((evo_artifact / 'level.txt').read_text())\n"
        f"    {gives}\n"
        "    assert level > n\n"
    )
    said = refused(root, *FEW)
    assert "score_from is 'recal'" in said
    assert words in said
    assert not records(root, "proposal")


def test_score_from_is_not_missed_where_a_hook_gives_the_scores(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    with (root / "pyproject.toml").open("a") as file:
        file.write('score_from = "recall"\n')
    (root / "conftest.py").write_text(
        "def pytest_evo_score(item, reports):\n    return 0.25\n"
    )
    done = evolve(root, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_fixtures_that_can_be_shared_are_named_as_slow(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "conftest.py").write_text(
        "import time, pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def index():\n"
        "    time.sleep(1.2)\n"
        "@pytest.fixture\n"
        "def reader():\n"
        "    time.sleep(0.1)\n"
    )
    (root / "test_level.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(12))\n"
        "@pytest.mark.parametrize('shared', [1], scope='session')\n"
        "def test_level(n, shared, index, reader, evo_artifact, tmp_path_factory):\n"
        "    assert int((evo_artifact / 'level.txt').read_text()) > n % 6\n"
    )
    done = evolve(root, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    advice = [line for line in done.stdout.splitlines() if "warm_fixtures" in line]
    assert len(advice) == 1
    assert "warm_fixtures = ['index']" in advice[0]


def test_suite_that_fails_everywhere_for_one_mistake_says_so_at_the_start(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    text = (
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(6))\n"
        "def test_level(n, evo_artifact, evo_score):\n"
        "    (evo_artifact / 'level.txt').read_text()\n"
        "    evo_score(40)\n"
    )
    (root / "test_level.py").write_text(text)
    said = refused(root, *FEW)
    assert "test_level.py::test_level[0]: 40 given as score for 'score' is out" in said
    assert "scale it to a number from 0 (worst) to 1 (best)" in said
    assert not (root / "evo-reports").exists()

    mistaken = text.replace("(40)", "(0.4)").replace("level.txt", "levle.txt")
    (root / "test_level.py").write_text(mistaken)
    done = evolve(root, "--budget-iterations=0", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    told = "every case fails on the start, 6 cases in all; test_level.py::test_level[0]"
    assert f"{told} says" in done.stdout
    assert "levle.txt'. If no edit of the artifact can mend that" in done.stdout
