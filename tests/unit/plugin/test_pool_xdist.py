from __future__ import annotations

import pytest

from pytest_evo.plugin.pools.xdist import _persistent


def test_worker_that_dies_while_it_starts_is_started_again() -> None:
    tried = []

    def start(spec: str, put: object) -> str:
        tried.append(spec)
        if len(tried) < 3:
            raise EOFError("expected 1 bytes, got 0")
        return "node"

    assert _persistent(start)("popen", print) == "node"
    assert tried == ["popen"] * 3


def test_worker_that_never_starts_is_told() -> None:
    def start(spec: str) -> None:
        raise EOFError(spec)

    with pytest.raises(EOFError, match="popen"):
        _persistent(start)("popen")
