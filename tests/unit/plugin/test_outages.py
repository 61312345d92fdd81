from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_evo.plugin.outages import outage

DOWN = """
def ask():
    raise ConnectionRefusedError("down")

def call(function):
    return function()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Makes modules in the project or in the artifact."""
    (tmp_path / "art").mkdir()
    made = []

    def make(name: str, *, inside: bool = False, text: str = DOWN):
        folder = tmp_path / "art" if inside else tmp_path
        (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(folder))
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        del sys.modules[name]


def raised(function: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011, any of them
        function()
    return caught.value


def why(tmp_path: Path, error: BaseException, *names: str) -> str | None:
    return outage(error, names, tmp_path / "art")


@pytest.mark.parametrize(
    "name", ["ConnectionRefusedError", "ConnectionError", "OSError", "builtins.OSError"]
)
def test_an_exception_of_the_project_counts_by_its_name_or_a_base(
    tmp_path, module, name
):
    error = raised(module("judge_client").ask)
    assert name in str(why(tmp_path, error, name))


def test_exceptions_of_the_standard_library_count(tmp_path, module):
    text = "import socket\ndef ask():\n    socket.create_connection(('127.0.0.1', 1))\n"
    error = raised(module("judge_client", text=text).ask)
    assert isinstance(error, OSError)
    assert why(tmp_path, error, "ConnectionError", "TimeoutError")


@pytest.mark.parametrize("names", [(), ("TimeoutError",), ("judge.OSError",)])
def test_other_exceptions_are_the_artifacts(tmp_path, module, names):
    assert why(tmp_path, raised(module("judge_client").ask), *names) is None


def test_what_the_artifact_raises_is_its_own(tmp_path, module):
    error = raised(module("answer", inside=True).ask)
    assert why(tmp_path, error, "ConnectionError") is None


def test_what_is_raised_for_the_artifact_is_its_own(tmp_path, module):
    judge = module("judge_client")
    answer = module("answer", inside=True)
    error = raised(lambda: answer.call(judge.ask))
    assert why(tmp_path, error, "ConnectionError") is None


def test_what_the_project_makes_of_the_artifacts_exception_is_no_outage(
    tmp_path, module
):
    text = (
        "class Down(Exception):\n    pass\n"
        "def ask(function):\n    try:\n        return function()\n"
        "    except OSError as error:\n        raise Down from error\n"
    )
    judge = module("judge_client", text=text)
    answer = module("answer", inside=True)
    assert why(tmp_path, raised(lambda: judge.ask(answer.ask)), "Down") is None
    own = module("other_client")
    assert why(tmp_path, raised(lambda: judge.ask(own.ask)), "Down")


def test_a_group_is_an_outage_if_nothing_in_it_is_of_the_artifact(tmp_path, module):
    judge, answer = module("judge_client"), module("answer", inside=True)
    for asked, counts in (([judge], True), ([judge, answer], False)):
        group = ExceptionGroup("both", [raised(one.ask) for one in asked])

        def ask(group: BaseException = group) -> None:
            raise group

        found = why(tmp_path, raised(ask), "ExceptionGroup")
        assert bool(found) is counts


@pytest.mark.parametrize("name", ["<made>", socket.__file__])
def test_generated_code_cannot_claim_an_outage(tmp_path, module, name):
    judge = module("judge_client")
    scope: dict[str, object] = {"__name__": "socket"}
    exec(compile(DOWN, name, "exec"), scope)
    error = raised(lambda: judge.call(scope["ask"]))
    assert why(tmp_path, error, "ConnectionError") is None
