"""Candidates that attack the process that judges them, end to end."""

from __future__ import annotations

import pytest
from attack_project import EARLY
from attack_project import make_attacked
from attack_project import Outcome
from attack_project import run_attacks

pytestmark = pytest.mark.slow
TAIL = "\ndef answer(n):\n    return 0\n"

TAMPERING = {
    "runtest": """
import _pytest.python
_pytest.python.Function.runtest = lambda self: None
""",
    "makereport": """
import _pytest.reports
old = _pytest.reports.TestReport.from_item_and_call.__func__
def kind(cls, item, call):
    call.excinfo = None
    return old(cls, item, call)
_pytest.reports.TestReport.from_item_and_call = classmethod(kind)
""",
    "from-call": """
import _pytest.runner
old = _pytest.runner.CallInfo.from_call.__func__
def kind(cls, func, when, reraise=None):
    def quiet():
        try:
            return func()
        except Exception:
            return None
    return old(cls, quiet, when, reraise)
_pytest.runner.CallInfo.from_call = classmethod(kind)
""",
    "plugin": """
import sys, pytest
class Kind:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        report.outcome, report.longrepr = "passed", None
        return report
frame = sys._getframe()
while frame and not isinstance(frame.f_locals.get("item"), pytest.Item):
    frame = frame.f_back
manager = frame.f_locals["item"].config.pluginmanager
if not manager.hasplugin("kind"):
    manager.register(Kind(), "kind")
""",
    "hook-calls": """
import sys, pytest
frame = sys._getframe()
while frame and not isinstance(frame.f_locals.get("item"), pytest.Item):
    frame = frame.f_back
manager = frame.f_locals["item"].config.pluginmanager
inner = manager._inner_hookexec
def kind(name, methods, kwargs, first):
    found = inner(name, methods, kwargs, first)
    if name == "pytest_runtest_makereport":
        found.outcome, found.longrepr = "passed", None
    return found
manager._inner_hookexec = kind
""",
    "score-fixture": """
import pytest_evo.plugin.recording as recording
recording.checked_score = lambda name, value: 1.0
""",
    "score-notes": """
import pytest_evo.plugin.itemrun as itemrun
itemrun.score_of = lambda outcome, notes, score_from=None: 1.0
""",
    "outcomes": """
import pytest_evo.plugin.itemrun as itemrun
from pytest_evo.models import Outcome
itemrun.outcome_of = lambda reports: Outcome.PASSED
""",
    "code-swap": """
import pytest_evo.plugin.outcomes as outcomes
def score_of(outcome, notes, score_from=None):
    return 1.0
outcomes.score_of.__code__ = score_of.__code__
""",
    "builtins": """
import builtins
class Yes(BaseException):
    pass
builtins.AssertionError = Yes
""",
    "clock": """
import time
time.perf_counter = lambda: 0.0
""",
    "items": """
import sys, pytest
frame = sys._getframe()
while frame and not isinstance(frame.f_locals.get("item"), pytest.Item):
    frame = frame.f_back
for one in frame.f_locals["item"].session.items:
    one.runtest = lambda: None
""",
    "test-code": """
import sys
frame = sys._getframe()
while frame and not frame.f_code.co_name.startswith("test_"):
    frame = frame.f_back
if frame:
    test = frame.f_globals[frame.f_code.co_name]
    test.__code__ = (lambda n, evo_artifact, evo_score=None: None).__code__
""",
    "junit": """
import _pytest.junitxml
_pytest.junitxml.LogXML.pytest_runtest_logreport = lambda self, report: None
""",
}
ENDING = {
    "skips": "import pytest\ndef answer(n):\n    pytest.skip('not today') if n else 0",
    "sys-exit": "import sys\ndef answer(n):\n    sys.exit(0)",
    "os-exit": "import os\ndef answer(n):\n    return os._exit(0) if n else 0",
    "pytest-exit": "import pytest\ndef answer(n):\n    pytest.exit('fine', 0)",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)" + TAIL,
    "keyboard": "def answer(n):\n    raise KeyboardInterrupt",
}
FRAMES = {
    "all-descriptors": """
import os
for number in range(3, 5000):
    try:
        os.write(number, b"\\0\\0\\0\\2{}passed" * 10)
    except OSError:
        pass
""",
    "stolen-writer": """
import gc, json
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.messages import Finished
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.models import Outcome
import os
case = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
raw = json.dumps(RawRollout(Outcome.PASSED, 1.0).to_plain()).encode()
for one in gc.get_objects():
    if isinstance(one, FrameWriter):
        one.send(Finished("", case, 0, payload=raw))
""",
    "farewell-too-early": """
import gc
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.messages import Farewell
for one in gc.get_objects():
    if isinstance(one, FrameWriter):
        one.send(Farewell())
""",
    "dies-before-the-check": """
import _pytest.python, os, threading
class Gone:
    def __iter__(self):
        os._exit(0)
import pytest_evo.plugin.emitting as emitting
emitting.last_word = lambda *args: os._exit(0)
import pytest_evo.plugin.forking as forking
forking.last_word = emitting.last_word
_pytest.python.Function.runtest = lambda self: None
""",
}


def attacked(pytester: pytest.Pytester, sources: dict[str, str]) -> Outcome:
    attacks = {
        name: {"solver.py": source if "def answer" in source else source + TAIL}
        for name, source in sources.items()
    }
    return run_attacks(make_attacked(pytester.path, attacks))


def check_nothing_gained(outcome: Outcome, attacks: dict[str, str]) -> None:
    """No attack scores above the start, and the honest edit is still believed."""
    for attack in attacks:
        scores = outcome.scores(attack)
        assert scores, attack
        for case, score in scores.items():
            assert not score or case.endswith("[0]"), (attack, case, score)
    assert outcome.winner == "honest", outcome.output
    assert outcome.violations("honest") == ""
    assert set(outcome.scores("honest").values()) == {1.0}


def test_code_that_rewires_the_judges_is_a_violation(
    pytester: pytest.Pytester,
) -> None:
    outcome = attacked(pytester, TAMPERING)
    check_nothing_gained(outcome, TAMPERING)
    for attack in TAMPERING:
        assert outcome.violations(attack), attack
        assert not any(outcome.scores(attack).values()), attack


@pytest.mark.parametrize("isolation", ["fresh", "workspace"])
def test_code_that_rewires_while_it_is_imported_is_a_violation(
    pytester: pytest.Pytester, isolation: str
) -> None:
    chosen = ("runtest", "makereport", "from-call", "outcomes", "builtins", "clock")
    sources = {name: TAMPERING[name] for name in chosen}
    attacks = {name: {"solver.py": text + TAIL} for name, text in sources.items()}
    root = make_attacked(pytester.path, attacks, f'isolation = "{isolation}"\n')
    (root / "tests" / "test_solver.py").write_text(EARLY)
    outcome = run_attacks(root)
    check_nothing_gained(outcome, sources)
    for attack in sources:
        assert outcome.violations(attack), attack


def test_ending_the_test_early_gains_nothing(pytester: pytest.Pytester) -> None:
    outcome = attacked(pytester, ENDING)
    check_nothing_gained(outcome, ENDING)
    skipped = [row for row in outcome.rollouts["skips"] if row["outcome"] == "skipped"]
    assert skipped
    assert {row["score"] for row in skipped} == {0.0}


def test_forged_frames_are_violations(pytester: pytest.Pytester) -> None:
    outcome = attacked(pytester, FRAMES)
    check_nothing_gained(outcome, FRAMES)
    for attack in FRAMES:
        assert outcome.violations(attack), attack
