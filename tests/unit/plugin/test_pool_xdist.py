from __future__ import annotations

from collections.abc import Iterator

import execnet
import pytest

from pytest_evo.plugin.pools.xdist import _persistent


@pytest.fixture
def group() -> Iterator[execnet.Group]:
    group = execnet.Group(execmodel="main_thread_only")
    yield group
    group.terminate(timeout=5)


def test_worker_that_dies_while_it_starts_is_started_again(
    group: execnet.Group,
) -> None:
    tried = []

    def start(spec: execnet.XSpec, put: object) -> str:
        tried.append(spec)
        if len(tried) < 3:
            raise EOFError("expected 1 bytes, got 0")
        return "node"

    spec = execnet.XSpec("popen")
    assert _persistent(start, group)(spec, print) == "node"
    assert tried == [spec] * 3


def test_worker_that_dies_when_it_has_its_name_is_started_under_another(
    group: execnet.Group,
) -> None:
    names = []

    def start(spec: execnet.XSpec) -> str:
        gateway = group.makegateway(spec)
        names.append(gateway.id)
        if len(names) < 3:
            raise OSError("cannot send (already closed?)")
        return "node"

    spec = execnet.XSpec("popen")
    group.allocate_id(spec)
    assert _persistent(start, group)(spec) == "node"
    assert names == ["gw0", "gw1", "gw2"]


def test_worker_that_never_starts_is_told(group: execnet.Group) -> None:
    def start(spec: execnet.XSpec) -> None:
        raise EOFError(spec)

    with pytest.raises(EOFError, match="popen"):
        _persistent(start, group)(execnet.XSpec("popen"))
