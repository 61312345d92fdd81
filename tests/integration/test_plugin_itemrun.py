"""Rollouts of real items in a forked child, as the worker runs them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from pytest_evo.models import Outcome
from pytest_evo.plugin.itemrun import RawRollout
from pytest_evo.plugin.itemrun import SHARED_TEARDOWN

DRIVER = """
import json, os, pytest
from pathlib import Path
from pytest_evo.plugin.cases import collected_marks
from pytest_evo.plugin.itemrun import ItemRunner, prepare_child

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    root = session.config.rootpath
    items = collected_marks(session).items
    wanted = json.loads((root / "wanted.json").read_text())
    runs = [tuple(run) for run in wanted] or [(case, 0) for case in items]
    runner = ItemRunner(session.config, session)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return True
    try:
        said = []
        def emit(what, case, repeat, raw):
            said.append([what, case, repeat, raw and raw.to_plain()])
            (root / "said.json").write_text(json.dumps(said))
        prepare_child(session.config, root / "tmp")
        runner.run(runs, items, seed=7, artifact=root / "artifact", emit=emit)
    except BaseException:
        import traceback
        (root / "broken.txt").write_text(traceback.format_exc())
    finally:
        os._exit(0)
"""


@dataclass
class Said:
    events: list[tuple[str, str, int]]
    rollouts: dict[tuple[str, int], RawRollout]

    def __getitem__(self, name: str) -> RawRollout:
        """The rollout of repeat 0 of the case whose name ends so."""
        (found,) = [
            raw
            for (case, repeat), raw in self.rollouts.items()
            if case.endswith(name) and repeat == 0
        ]
        return found

    def outcomes(self) -> dict[str, str]:
        return {
            case.split("::")[-1]: raw.outcome.value
            for (case, repeat), raw in self.rollouts.items()
            if repeat == 0
        }


@pytest.fixture
def rollouts(pytester: pytest.Pytester):
    pytester.mkdir("artifact").joinpath("word.txt").write_text("good")
    pytester.makefile(".toml", pyproject='[tool.pytest_evo]\nartifact = "artifact"\n')

    def run(
        source: str,
        *args: str,
        runs: tuple[tuple[str, int], ...] = (),
        conftest: str = "",
    ) -> Said:
        pytester.makepyfile(test_it=source)
        pytester.makeconftest(DRIVER + conftest)
        (pytester.path / "wanted.json").write_text(json.dumps(runs))
        result = pytester.runpytest(*args)
        broken = pytester.path / "broken.txt"
        assert not broken.exists(), broken.read_text()
        text = (pytester.path / "said.json").read_text()
        said = json.loads(text)
        assert "FAILED" not in result.stdout.str(), "rollouts reached the terminal"
        return Said(
            [(what, case, repeat) for what, case, repeat, _ in said],
            {
                (case, repeat): RawRollout.from_plain(raw)
                for _, case, repeat, raw in said
                if raw
            },
        )

    return run


def test_rollout_reads_the_candidate_and_scores_by_outcome(rollouts):
    said = rollouts(
        """
        import os
        def test_good(evo_artifact):
            assert (evo_artifact / "word.txt").read_text() == "good"
            assert os.environ["PYTEST_EVO_ARTIFACT"] == str(evo_artifact)
            assert os.environ["PYTEST_EVO_REPEAT"] == "0"
        def test_bad(evo_artifact):
            print("seen")
            assert (evo_artifact / "word.txt").read_text() == "bad"
        """
    )
    assert said["test_good"].score == 1.0
    bad = said["test_bad"]
    assert (bad.outcome, bad.score) == (Outcome.FAILED, 0.0)
    call = bad.detail.phases[1]
    assert (call.when, call.outcome, call.file) == ("call", "failed", "test_it.py")
    assert "== 'bad'" in call.message
    assert call.sections == (("Captured stdout call", "seen\n"),)
    assert said.events == [
        ("started", "test_it.py::test_good", 0),
        ("finished", "test_it.py::test_good", 0),
        ("started", "test_it.py::test_bad", 0),
        ("finished", "test_it.py::test_bad", 0),
    ]


def test_phase_failures_get_the_outcome_of_the_test(rollouts):
    said = rollouts(
        """
        import pytest
        @pytest.fixture
        def bad_setup():
            raise RuntimeError("no set-up")
        @pytest.fixture
        def bad_teardown():
            yield
            raise RuntimeError("no tear-down")
        def test_setup(bad_setup): pass
        def test_teardown(bad_teardown): pass
        def test_both(bad_teardown): assert 0
        def test_skip_and_teardown(bad_teardown): pytest.skip("early")
        def test_skip(): pytest.skip("early")
        @pytest.mark.xfail(reason="not yet")
        def test_xfailed(): assert 0
        @pytest.mark.xfail
        def test_xpassed(): pass
        @pytest.mark.xfail(strict=True)
        def test_strict(): pass
        @pytest.mark.xfail(run=False)
        def test_not_run(): pass
        def test_fine(): pass
        """
    )
    assert said.outcomes() == {
        "test_setup": "error",
        "test_teardown": "error",
        "test_both": "failed",
        "test_skip_and_teardown": "error",
        "test_skip": "skipped",
        "test_xfailed": "failed",
        "test_xpassed": "passed",
        "test_strict": "failed",
        "test_not_run": "skipped",
        "test_fine": "passed",
    }
    assert said["test_skip"].score is None
    assert said["test_teardown"].score is None
    assert said["test_xfailed"].detail.phases[1].xfail == "not yet"


def test_shared_teardown_failure_is_not_the_last_case_s(rollouts):
    said = rollouts(
        """
        import pytest
        @pytest.fixture(scope="module", autouse=True)
        def module_end():
            yield
            print("closing")
            raise RuntimeError("the module would not close")
        def test_first(): pass
        def test_last(): pass
        """
    )
    assert said.outcomes() == {"test_first": "passed", "test_last": "passed"}
    phase = said["test_last"].detail.phases[-1]
    assert (phase.when, phase.outcome) == (SHARED_TEARDOWN, "failed")
    assert "test_it.py" in phase.message
    assert "would not close" in phase.message
    assert ("Captured stdout teardown", "closing\n") in phase.sections
    assert all(p.when != SHARED_TEARDOWN for p in said["test_first"].detail.phases)


def test_fixtures_of_all_scopes_are_torn_down_in_reverse(rollouts, pytester):
    rollouts(
        """
        import pytest
        from pathlib import Path
        def fixture(scope):
            @pytest.fixture(scope=scope)
            def made(request):
                with open(request.config.rootpath / "trail", "a") as trail:
                    trail.write(f"up {scope}\\n")
                yield
                with open(request.config.rootpath / "trail", "a") as trail:
                    trail.write(f"down {scope}\\n")
            return made
        s, m, c, f = map(fixture, ["session", "module", "class", "function"])
        class TestIt:
            def test_one(self, s, m, c, f): pass
            def test_two(self, s, m, c, f): pass
        """
    )
    assert (pytester.path / "trail").read_text().split("\n")[:-1] == [
        "up session",
        "up module",
        "up class",
        "up function",
        "down function",
        "up function",
        "down function",
        "down class",
        "down module",
        "down session",
    ]


def test_repeats_of_a_case_start_afresh_and_differ_only_by_seed(rollouts):
    case = "test_it.py::test_draw"
    said = rollouts(
        """
        import os, random, pytest
        @pytest.fixture
        def fresh():
            return []
        def test_draw(fresh, evo_score, evo_trace, request):
            fresh.append(1)
            assert fresh == [1]
            assert len(request.node.user_properties) == 0
            evo_trace("draw", value=random.random(), n=os.environ["PYTEST_EVO_REPEAT"])
            evo_score(0.5)
            print("once")
        """,
        runs=((case, 0), (case, 1), (case, 0)),
    )
    first, second = said.rollouts[case, 0], said.rollouts[case, 1]
    assert first.score == second.score == 0.5
    assert first.detail.steps[0].data["n"] == "0"
    assert second.detail.steps[0].data["n"] == "1"
    assert first.detail.steps[0].data["value"] != second.detail.steps[0].data["value"]
    assert len(second.detail.phases[1].sections) == 1
    assert [event for event in said.events if event[0] == "started"] == [
        ("started", case, 0),
        ("started", case, 1),
        ("started", case, 0),
    ]


def test_subtests_make_their_case_failed(rollouts):
    said = rollouts(
        """
        def test_sub(subtests):
            for word in ["A", "b"]:
                with subtests.test("upper", word=word):
                    assert word.isupper()
        def test_fine(subtests):
            with subtests.test("empty"):
                pass
        """
    )
    assert said.outcomes() == {"test_sub": "failed", "test_fine": "passed"}
    (failed,) = [p for p in said["test_sub"].detail.phases if p.outcome == "failed"]
    assert "[upper] (word='b')" in failed.message


def test_unittest_cases_and_their_subtests(rollouts):
    said = rollouts(
        """
        import unittest
        class Levels(unittest.TestCase):
            def test_sub(self):
                for n in (1, 2):
                    with self.subTest(n=n):
                        self.assertEqual(n % 2, 0)
            @unittest.expectedFailure
            def test_gap(self): self.fail()
            @unittest.expectedFailure
            def test_closed(self): pass
            def test_clean_up(self): self.addCleanup(lambda: {}["nowhere"])
            def test_fine(self): pass
        class NeverStarts(unittest.TestCase):
            @classmethod
            def setUpClass(cls): raise OSError("no database")
            def test_a(self): pass
            def test_b(self): pass
        """
    )
    assert said.outcomes() == {
        "test_sub": "failed",
        "test_gap": "failed",
        "test_closed": "failed",
        "test_clean_up": "failed",
        "test_fine": "passed",
        "test_a": "error",
        "test_b": "error",
    }
    assert said["test_gap"].detail.phases[1].xfail is not None
    assert said["test_closed"].detail.phases[1].xfail is None


def test_tests_that_end_the_session_end_only_themselves(rollouts, pytester):
    said = rollouts(
        """
        import sys, pytest
        @pytest.fixture
        def trail(request):
            yield
            with open(request.config.rootpath / "trail", "a") as trail:
                trail.write(request.node.name + " ")
        class Sudden(BaseException): pass
        def test_exit(trail): pytest.exit("done here", returncode=0)
        def test_interrupt(trail): raise KeyboardInterrupt
        def test_sys_exit(trail): sys.exit(0)
        def test_generator_exit(trail): raise GeneratorExit
        def test_sudden(trail): raise Sudden
        @pytest.fixture
        def exits(): pytest.exit("in set-up")
        def test_setup(exits): pass
        def test_stop(request): request.session.shouldstop = "please"
        def test_after(trail): pass
        """
    )
    assert said.outcomes() == {
        "test_exit": "failed",
        "test_interrupt": "failed",
        "test_sys_exit": "failed",
        "test_generator_exit": "failed",
        "test_sudden": "failed",
        "test_setup": "error",
        "test_stop": "passed",
        "test_after": "passed",
    }
    assert "done here" in said["test_exit"].detail.phases[1].message
    assert (pytester.path / "trail").read_text().split() == [
        "test_exit",
        "test_interrupt",
        "test_sys_exit",
        "test_generator_exit",
        "test_sudden",
        "test_after",
    ]


def test_scores_give_partial_credit_and_name_what_counts(rollouts):
    said = rollouts(
        """
        def test_partial(evo_score):
            evo_score(0.7)
            assert 0
        def test_named(evo_score):
            evo_score("recall", 0.4)
            evo_score("honesty", 0.1, audit=True)
        def test_unclear(evo_score):
            evo_score("a", 0.1)
            evo_score("b", 0.2)
        def test_outside(evo_score):
            evo_score(1.5)
        def test_usage(evo_usage):
            evo_usage(tokens=10, usd=0.5)
        """
    )
    assert (said["test_partial"].outcome, said["test_partial"].score) == (
        Outcome.FAILED,
        0.7,
    )
    assert said["test_named"].score == 0.4
    assert [m.audit for m in said["test_named"].metrics] == [False, True]
    unclear = said["test_unclear"]
    assert (unclear.outcome, unclear.score) == (Outcome.ERROR, None)
    assert 'score_from = "a"' in str(unclear.problem)
    assert (said["test_outside"].outcome, said["test_outside"].score) == (
        Outcome.FAILED,
        0.0,
    )
    assert "1.5 given as score" in str(said["test_outside"].problem)
    assert said["test_partial"].problem is None
    assert (said["test_usage"].usage.tokens, said["test_usage"].usage.usd) == (10, 0.5)


def test_score_from_selects_the_metric(rollouts, pytester):
    pytester.makefile(
        ".toml",
        pyproject='[tool.pytest_evo]\nartifact = "artifact"\nscore_from = "b"\n',
    )
    said = rollouts(
        """
        def test_both(evo_score):
            evo_score("a", 0.1)
            evo_score("b", 0.2)
        def test_other(evo_score):
            evo_score("a", 0.1)
        def test_fails_early(evo_score):
            evo_score("a", 0.1)
            assert 0
        """
    )
    assert said["test_both"].score == 0.2
    assert "'b'" in str(said["test_other"].problem)
    assert said["test_fails_early"].score == 0.0


def test_score_hook_wins_and_its_mistakes_are_told(rollouts):
    said = rollouts(
        """
        def test_half(evo_score): evo_score(0.9)
        def test_left(evo_score): evo_score(0.9)
        def test_wrong(evo_score): pass
        def test_broken(evo_score): pass
        """,
        conftest="""
def pytest_evo_score(item, reports):
    assert [report.when for report in reports] == ["setup", "call", "teardown"]
    if item.name == "test_broken":
        raise LookupError("no judge")
    return {"test_half": 0.5, "test_wrong": 7}.get(item.name)
""",
    )
    assert said["test_half"].score == 0.5
    assert said["test_left"].score == 0.9
    assert "outside [0, 1]" in str(said["test_wrong"].problem)
    assert "no judge" in str(said["test_broken"].problem)


def test_warnings_fixtures_and_reports_come_along(rollouts):
    said = rollouts(
        """
        import time, warnings, pytest
        @pytest.fixture(scope="module")
        def index():
            time.sleep(0.05)
        @pytest.fixture
        def reader(request):
            request.getfixturevalue("index")
        def test_it(reader):
            warnings.warn("old ways")
        """,
        "-W",
        "default",
    )
    rollout = said["test_it"]
    assert "UserWarning: old ways" in rollout.detail.warnings[0]
    assert rollout.detail.fixtures["index"] >= 0.05
    assert rollout.detail.fixtures["reader"] < 0.05
    assert rollout.seconds < 0.05
    assert [one["when"] for one in rollout.detail.serialized] == [
        "setup",
        "call",
        "teardown",
    ]


def test_warnings_of_shared_teardown_meet_the_filters(rollouts):
    said = rollouts(
        """
        import warnings, pytest
        @pytest.fixture(scope="module")
        def index():
            yield
            warnings.warn("left open")
        def test_it(index): pass
        """,
        "-W",
        "error",
    )
    assert "left open" in said["test_it"].detail.phases[-1].message


def test_a_failing_plugin_is_an_error_of_the_rollout(rollouts):
    said = rollouts(
        "def test_it(): pass\ndef test_next(): pass",
        conftest="""
def pytest_runtest_logstart(nodeid):
    if nodeid.endswith("test_it"):
        raise RuntimeError("reporter is down")
""",
    )
    assert said.outcomes() == {"test_it": "error", "test_next": "passed"}
    assert "reporter is down" in said["test_it"].detail.phases[-1].message


def test_a_case_without_an_item_is_missing(rollouts):
    said = rollouts(
        "def test_it(): pass", runs=(("gone.py::test_x", 0), ("test_it.py::test_it", 0))
    )
    assert said["test_x"].outcome is Outcome.MISSING
    assert ("started", "gone.py::test_x", 0) not in said.events
    assert said["test_it"].outcome is Outcome.PASSED


def test_doctests_and_parameters_run(rollouts):
    said = rollouts(
        '''
        import pytest
        def double(x):
            """
            >>> double(2)
            5
            """
            return 2 * x
        @pytest.mark.parametrize("x", [1, 2], ids=["one", "nul\\x00"])
        def test_it(x):
            assert x == 1
        ''',
        "--doctest-modules",
    )
    assert sorted(said.outcomes().values()) == ["failed", "failed", "passed"]
    (doc,) = [raw for (case, _), raw in said.rollouts.items() if "double" in case]
    assert "Expected:" in doc.detail.phases[1].longrepr


@pytest.mark.parametrize(
    "args", [[], ["-s"], ["--capture=sys"], ["--capture=tee-sys"], ["-o", "log_cli=1"]]
)
def test_output_is_kept_however_pytest_captures(rollouts, args):
    said = rollouts(
        """
        import logging, os, sys
        def test_out():
            print("by print")
            os.write(1, b"by descriptor\\n")
            os.write(2, b"to the other\\n")
            logging.getLogger("who").warning("by log")
            assert os.read(0, 10) == b""
        def test_quiet(): pass
        """,
        *args,
    )
    assert said.outcomes() == {"test_out": "passed", "test_quiet": "passed"}
    sections = dict(said["test_out"].detail.phases[1].sections)
    assert "by print" in sections["Captured stdout call"]
    assert "by descriptor" in sections["Captured stdout call"]
    assert sections["Captured stderr call"] == "to the other\n"
    assert "by log" in sections["Captured log call"]
    assert said["test_quiet"].detail.phases[1].sections == ()


def test_lone_surrogates_survive(rollouts):
    said = rollouts(
        r"""
        def test_it(evo_trace):
            evo_trace("odd", text="\ud800\x00")
            print("\x00")
            assert "\ud800" == "b"
        """
    )
    assert said["test_it"].detail.steps[0].data == {"text": "\ud800\x00"}
    assert "\x00" in said["test_it"].detail.phases[1].sections[0][1]


def test_tmp_path_and_cache_are_the_child_s_own(rollouts, pytester):
    said = rollouts(
        """
        def test_it(tmp_path, tmp_path_factory, request):
            (tmp_path / "x").write_text("x")
            tmp_path_factory.mktemp("fixed", numbered=False)
            request.config.cache.set("a/b", 1)
        """,
    )
    assert said["test_it"].outcome is Outcome.PASSED
    assert (pytester.path / "tmp" / "fixed").is_dir()
    assert not (pytester.path / ".pytest_cache" / "v" / "a").exists()


def test_maxfail_does_not_end_a_request(rollouts):
    said = rollouts("def test_a(): assert 0\ndef test_b(): assert 0", "-x")
    assert said.outcomes() == {"test_a": "failed", "test_b": "failed"}


def test_rerun_plugins_do_not_rerun(rollouts, pytester):
    pytester.makepyfile(
        pytest_rerunfailures="""
        import pytest
        from _pytest.runner import runtestprotocol
        def pytest_runtest_protocol(item, nextitem):
            runtestprotocol(item, nextitem=nextitem)
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    pytester.syspathinsert()
    said = rollouts("def test_it(): assert 0", "-p", "pytest_rerunfailures")
    assert len(said["test_it"].detail.phases) == 3


def test_setup_show_works(rollouts):
    said = rollouts("def test_it(tmp_path): pass", "--setup-show")
    assert said["test_it"].outcome is Outcome.PASSED
