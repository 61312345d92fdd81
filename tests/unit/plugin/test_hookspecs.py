from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from pytest_evo.engine.parts import Strategy
from pytest_evo.plugin import hookspecs
from pytest_evo.plugin.evolving import ExitCode

REFERENCE = Path(__file__).parents[3] / "docs/reference"
HOOKS = [
    hook for name, hook in vars(hookspecs).items() if name.startswith("pytest_evo_")
]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__name__)
def test_example_of_a_hook_is_an_implementation_of_it(hook):
    _, _, example = inspect.getdoc(hook).partition("::\n\n")
    assert example.startswith("    def ")
    (function,) = ast.parse(inspect.cleandoc(f"\n{example}")).body
    assert function.name == hook.__name__
    wanted = {argument.arg for argument in function.args.args}
    assert wanted <= set(inspect.signature(hook).parameters)


def test_reference_tells_every_part_of_a_strategy_and_its_example_works():
    text = (REFERENCE / "hooks.md").read_text()
    for field in dataclasses.fields(Strategy):
        assert f"| `{field.name}` | `{field.type}` |" in text
    (example,) = re.findall(r"(?s)```python\n(from [^`]*)```", text)
    made: dict[str, object] = {}
    exec(example, made)
    assert isinstance(made["greedy"](), Strategy)


def test_reference_tells_every_exit_code_of_a_run():
    text = (REFERENCE / "command-line.md").read_text()
    assert [code for code in ExitCode if f"\n| {int(code)} |" not in text] == []
