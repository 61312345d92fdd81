from __future__ import annotations

import pytest

from pytest_evo.errors import UsageProblem
from pytest_evo.models import Reach
from pytest_evo.plugin.isolation.choose import Choice
from pytest_evo.plugin.isolation.choose import choose

NOTHING = Reach()
EARLY = Reach(files=("prompt.txt",))
LATE = Reach(files=("prompt.txt",))
STALE = Reach(stale=("prompt.txt",))
DENIED = "making a user namespace: Operation not permitted"


@pytest.mark.parametrize(
    ("mount", "early", "late", "include", "expected"),
    [
        (None, NOTHING, LATE, (), ("fork", True)),
        (None, EARLY, LATE, (), ("fresh", True)),
        (None, NOTHING, STALE, (), ("fork", True)),
        (None, NOTHING, LATE, ("*.txt",), ("fork", True)),
        (DENIED, NOTHING, LATE, (), ("fork", False)),
        (DENIED, EARLY, LATE, (), ("workspace", False)),
        (DENIED, NOTHING, STALE, (), ("workspace", False)),
        (DENIED, NOTHING, LATE, ("*.txt",), ("workspace", False)),
    ],
)
def test_auto_on_linux_follows_what_was_read(
    mount: str | None,
    early: Reach,
    late: Reach,
    include: tuple[str, ...],
    expected: tuple[str, bool],
) -> None:
    choice = choose("auto", mount, early, [NOTHING, late], "linux", include)
    assert (choice.mode, choice.mount) == expected
    assert choice.why


@pytest.mark.parametrize(
    ("early", "late", "mode"),
    [
        (NOTHING, LATE, "fresh"),
        (EARLY, LATE, "workspace"),
        (NOTHING, STALE, "workspace"),
    ],
)
def test_auto_on_macos_never_forks_what_has_collected(
    early: Reach, late: Reach, mode: str
) -> None:
    choice = choose("auto", "a private mount needs Linux", early, [late], "darwin")
    assert (choice.mode, choice.mount) == (mode, False)


def test_threads_and_open_files_keep_auto_from_forking() -> None:
    held = choose("auto", None, NOTHING, [], "linux", threads=["ticker"])
    assert (held.mode, held.mount) == ("fresh", True)
    assert "ticker" in held.why
    held = choose("auto", None, NOTHING, [], "linux", descriptors=["/p/artifact/a"])
    assert held.mode == "fresh"
    asked = choose("fork", None, NOTHING, [], "linux", threads=["ticker"])
    assert asked.mode == "fork"
    assert "ticker" in asked.why


def test_windows_has_workspaces_only() -> None:
    assert choose("auto", "no", NOTHING, [], "win32").mode == "workspace"
    assert choose("workspace", "no", NOTHING, [], "win32").mode == "workspace"
    with pytest.raises(
        UsageProblem,
        match="plain runs, reports, and --evolve/gate in workspace only; anything "
        "else is refused",
    ):
        choose("fork", "no", NOTHING, [], "win32")


def test_fork_after_reads_at_collection_is_refused_with_what_to_type() -> None:
    with pytest.raises(UsageProblem, match=r"prompt\.txt.*--evo-isolation=fresh"):
        choose("fork", None, EARLY, [], "linux")
    with pytest.raises(UsageProblem, match="--evo-isolation=workspace"):
        choose("fork", DENIED, EARLY, [], "linux")


@pytest.mark.parametrize("setting", ["fork", "fresh"])
def test_fixed_paths_without_a_mount_are_refused_with_what_to_type(
    setting: str,
) -> None:
    with pytest.raises(UsageProblem) as problem:
        choose(setting, DENIED, NOTHING, [LATE, STALE], "linux")
    text = str(problem.value)
    assert "prompt.txt read from the artifact's fixed path" in text
    assert DENIED in text
    assert "--evo-isolation=workspace" in text
    assert "evo_artifact" in text


def test_include_without_a_mount_needs_a_workspace() -> None:
    with pytest.raises(UsageProblem, match="include narrows"):
        choose("fork", DENIED, NOTHING, [], "linux", ["*.txt"])


@pytest.mark.parametrize("setting", ["fork", "fresh"])
def test_modes_asked_for_are_mounted_where_possible(setting: str) -> None:
    assert choose(setting, None, NOTHING, [STALE], "linux") == Choice(
        setting, True, "asked for"
    )


def test_workspace_is_never_refused_and_never_mounted() -> None:
    choice = choose("workspace", None, EARLY, [STALE], "linux", ["*.txt"])
    assert (choice.mode, choice.mount) == ("workspace", False)


def test_long_lists_are_cut() -> None:
    reach = Reach(files=tuple(f"f{number}" for number in range(9)))
    assert "f2 and 6 more" in choose("auto", None, reach, [], "linux").why


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageProblem, match="type one of auto, fork, fresh, workspace"):
        choose("sandbox", None, NOTHING, [], "linux")
