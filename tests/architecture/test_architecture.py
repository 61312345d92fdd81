"""Promises about the shape of the code that no single module can keep."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_evo

PACKAGE = Path(pytest_evo.__file__).parent
HEAVY = ("litellm", "pydantic", "optuna", "junitparser", "rich", "tomlkit", "numpy")


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_engine_leaves_pytest_unloaded() -> None:
    loaded = loaded_after("import pytest_evo.engine.loop")
    assert not {"pytest", "_pytest", "pluggy", "xdist", "execnet"} & loaded


def test_plugin_leaves_everything_heavy_unloaded() -> None:
    before = loaded_after("import pytest")
    loaded = loaded_after("import pytest_evo.plugin.entry") - before
    assert not {name for name in loaded if name.partition(".")[0] in HEAVY}


def test_plain_run_with_the_plugin_leaves_everything_heavy_unloaded(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        f"""
        import sys

        def test_nothing_heavy():
            assert not {set(HEAVY)!r} & set(sys.modules)
        """
    )
    pytester.makeconftest("")
    result = pytester.runpytest_subprocess(
        "-p", "no:hypothesispytest", "-p", "no:anyio"
    )
    result.assert_outcomes(passed=1)


def test_no_module_catches_everything_silently() -> None:
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler) or node.type is not None:
                continue
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_modules_and_functions_stay_small() -> None:
    long = []
    for path, tree in modules():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > 480:
            long.append(f"{path.name}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > 60:
                    long.append(f"{path.name}:{node.lineno} {node.name}: {size} lines")
    assert long == []


def test_litellm_has_one_importer_at_most() -> None:
    importers = [
        path.name
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "litellm" in ast.unparse(node)
    ]
    assert len(set(importers)) <= 1


def test_every_public_package_says_what_it_is() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
