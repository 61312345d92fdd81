from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.artifact.guard import delete_inside
from pytest_evo.artifact.guard import forbidden
from pytest_evo.artifact.guard import holds_pytest_settings
from pytest_evo.artifact.guard import read_inside
from pytest_evo.artifact.guard import resolve_inside
from pytest_evo.artifact.guard import write_inside
from pytest_evo.errors import ProposalRefused


def build(top: Path) -> Path:
    """An artifact with every kind of link, beside what nobody may touch."""
    root = top / "artifact"
    (root / "sub").mkdir(parents=True)
    (top / "outside").mkdir()
    (top / "outside" / "secret.txt").write_text("secret")
    (root / "prompt.txt").write_text("hello")
    (root / "sub" / "deep.txt").write_text("deep")
    for name, target in {
        "link_out": "../outside",
        "link_file": "../outside/secret.txt",
        "dangling_out": "../outside/new.txt",
        "absolute": str(root / "prompt.txt"),
        "sub/link_up": "..",
        "inner": "sub",
        "inner_file": "prompt.txt",
        "dangling": "later.txt",
        "loop": "loop",
    }.items():
        (root / name).symlink_to(target)
    return root


def outside(top: Path) -> dict[str, str]:
    return {
        path.relative_to(top).as_posix(): path.read_text()
        for path in top.rglob("*")
        if path.is_file() and not path.is_relative_to(top / "artifact")
    }


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("prompt.txt", "prompt.txt"),
        ("sub/new.txt", "sub/new.txt"),
        ("new/folder/file.md", "new/folder/file.md"),
        ("./prompt.txt", "prompt.txt"),
        ("sub/../prompt.txt", "prompt.txt"),
        ("sub//deep.txt", "sub/deep.txt"),
        ("inner/deep.txt", "sub/deep.txt"),
        ("inner_file", "prompt.txt"),
        ("dangling", "later.txt"),
        ("sub/link_up/prompt.txt", "prompt.txt"),
        ("%2e%2e/x", "%2e%2e/x"),
        ("skills/pytest/SKILL.md", "skills/pytest/SKILL.md"),
        ("PROMPT.TXT", "PROMPT.TXT"),
    ],
)
def test_resolve_inside_gives_the_real_place(tmp_path, name, real):
    root = build(tmp_path)
    assert resolve_inside(root, name) == root / real


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret.txt",
        "/etc/passwd",
        "sub/../../outside/secret.txt",
        "link_out/secret.txt",
        "link_out/new.txt",
        "link_file",
        "dangling_out",
        "absolute",
        "loop",
        "loop/x",
        "sub/link_up/../outside/secret.txt",
        "inner/../../outside/secret.txt",
        "~/x",
        "",
        ".",
        "..",
        "sub",
        "sub/..",
        "inner",
        "prompt.txt/",
        "prompt.txt/more.txt",
        "prompt.txt/../sub/deep.txt",
        "a\0b.txt",
        "new\nline.txt",
        "x" * 300,
        "d/" * 600 + "d",
        "..\\tests\\x",
        "C:\\Windows\\win.ini",
        "C:x",
        "file:///etc/passwd",
        "\uff0e\uff0e/x",
        "\udcff",
        "a./b",
        "nul.txt",
        "a:b",
        ".git/hooks/pre-commit",
        "sub/.GIT/config",
        "conftest.py",
        "sub/Conftest.py",
        "pytest.ini",
        "sitecustomize.py",
        "pytest.py",
        "_pytest/__init__.py",
        "x.dist-info/entry_points.txt",
        "x.pth",
        "__pycache__/x.cpython-311.pyc",
    ],
)
def test_resolve_inside_refuses_and_says_why(tmp_path, name):
    root = build(tmp_path)
    with pytest.raises(ProposalRefused, match="Name a file inside the artifact"):
        resolve_inside(root, name)
    with pytest.raises(ProposalRefused):
        write_inside(root, name, b"x")
    assert outside(tmp_path) == {"outside/secret.txt": "secret"}


parts = st.sampled_from(
    [
        "..",
        ".",
        "",
        "sub",
        "inner",
        "link_out",
        "link_up",
        "loop",
        "new",
        "x.txt",
        "~",
        "prompt.txt",
        "secret.txt",
        "outside",
        "artifact",
        "dangling_out",
        "dangling",
    ]
)
hostile_names = st.one_of(
    st.lists(parts, min_size=1, max_size=6).map("/".join),
    st.lists(parts, min_size=1, max_size=4).map(lambda some: "/" + "/".join(some)),
    st.text(max_size=12),
)
edits = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete", "read", "link"]),
        hostile_names,
        st.sampled_from(["..", "../outside", ".", "sub", "../outside/secret.txt"]),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(program=edits)
def test_no_program_of_edits_ever_gets_outside(program):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        root = build(top)
        before = outside(top)
        for act, name, target in program:
            with suppress(ProposalRefused):
                if act == "write":
                    assert write_inside(root, name, b"mine").is_relative_to(root)
                elif act == "delete":
                    delete_inside(root, name)
                elif act == "read":
                    assert read_inside(root, name) != b"secret"
                else:  # what an agent with a shell may do on its own
                    plain = resolve_inside(root, name)
                    if plain.parent.is_dir() and not os.path.lexists(plain):
                        plain.symlink_to(target)
        assert outside(top) == before


@settings(deadline=None)
@given(name=hostile_names)
def test_resolved_places_are_inside_and_without_links(name):
    with tempfile.TemporaryDirectory() as folder:
        root = build(Path(folder))
        try:
            place = resolve_inside(root, name)
        except ProposalRefused:
            return
        assert place.is_relative_to(root)
        assert place != root
        real = root.resolve()
        assert place.resolve() == real / place.relative_to(root)


def test_a_link_put_there_after_the_look_is_not_followed(tmp_path, monkeypatch):
    root = build(tmp_path)
    (root / "folder").mkdir()
    place = root / "folder" / "x.txt"

    def swapped(where: Path, name: str) -> Path:
        found = resolve_inside(where, name)
        (root / "folder").rmdir()
        (root / "folder").symlink_to("../outside")
        return found

    monkeypatch.setattr("pytest_evo.artifact.guard.resolve_inside", swapped)
    with pytest.raises(ProposalRefused, match="cannot be used"):
        write_inside(root, "folder/x.txt", b"x")
    assert outside(tmp_path) == {"outside/secret.txt": "secret"}
    assert not place.exists()


def test_write_inside_keeps_permissions_and_replaces_read_only_files(tmp_path):
    root = build(tmp_path)
    for name, mode in {"run.sh": 0o755, "token": 0o600, "frozen": 0o444}.items():
        (root / name).write_text("old")
        (root / name).chmod(mode)
        write_inside(root, name, b"new")
        assert (root / name).read_bytes() == b"new"
        assert stat.S_IMODE((root / name).stat().st_mode) == mode
    write_inside(root, "fresh.txt", b"")
    assert stat.S_IMODE((root / "fresh.txt").stat().st_mode) == 0o644
    assert not list(root.rglob("*.new"))


def test_write_inside_never_writes_into_another_name_of_a_file(tmp_path):
    root = build(tmp_path)
    os.link(tmp_path / "outside/secret.txt", root / "twin")
    write_inside(root, "twin", b"mine")
    assert outside(tmp_path) == {"outside/secret.txt": "secret"}


def test_read_only_folders_are_refused_for_root_too(tmp_path):
    root = build(tmp_path)
    (root / "sub").chmod(0o555)
    for act in (
        lambda: write_inside(root, "sub/x.txt", b"x"),
        lambda: write_inside(root, "sub/more/x.txt", b"x"),
        lambda: delete_inside(root, "sub/deep.txt"),
    ):
        with pytest.raises(ProposalRefused, match="read-only folder"):
            act()
    assert read_inside(root, "sub/deep.txt") == b"deep"
    (root / "sub").chmod(0o755)


def test_reading_and_deleting_what_is_not_there_is_refused(tmp_path):
    root = build(tmp_path)
    for act in (read_inside, delete_inside):
        with pytest.raises(ProposalRefused, match="No such file"):
            act(root, "gone.txt")
    os.mkfifo(root / "pipe")
    with pytest.raises(ProposalRefused, match="a pipe"):
        read_inside(root, "pipe")


@pytest.mark.parametrize(
    "path",
    [
        "a/conftest.py",
        "CONFTEST.PY",
        "pytest.toml",
        "usercustomize.py",
        "a.egg-info/x",
        "xdist/__init__.py",
        "pluggy.cpython-311-x86_64-linux-gnu.so",
        "a/b.PYC",
    ],
)
def test_forbidden_names_act_by_themselves(path):
    assert forbidden(path)


@pytest.mark.parametrize(
    "path",
    [
        "prompt.md",
        "pyproject.toml",
        "steps/rank.py",
        "pytest",
        "pytest/notes.md",
        "conftest.md",
        "path.pthx",
        "docs/pytest.md",
        "__init__.py",
        "a/__init__.py",
    ],
)
def test_other_names_are_not_forbidden(path):
    assert forbidden(path) is None


@pytest.mark.parametrize(
    ("path", "text", "holds"),
    [
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts='-x'", True),
        ("pyproject.toml", "[tool.pytest_evo]\nbatch=1", True),
        ("a/pyproject.toml", "[tool.pytest]\nx=1", True),
        ("pyproject.toml", "[tool.ruff]\nx=1", False),
        ("pyproject.toml", "tool = 1", False),
        ("pyproject.toml", "[", False),
        ("setup.cfg", "[tool:pytest]\naddopts = -x", True),
        ("setup.cfg", "[metadata]\nname = x", False),
        ("tox.ini", "[pytest]\n", True),
        ("tox.ini", "[tox]\n", False),
        ("tox.ini", "\0\1", False),
        ("other.toml", "[tool.pytest]\nx=1", False),
    ],
)
def test_holds_pytest_settings_looks_into_the_file(path, text, holds):
    assert holds_pytest_settings(path, text.encode()) is holds
