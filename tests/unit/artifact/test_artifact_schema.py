from __future__ import annotations

from pathlib import Path

import pytest

from pytest_evo.artifact.schema import editable
from pytest_evo.artifact.schema import locate
from pytest_evo.artifact.schema import rule_for
from pytest_evo.artifact.schema import schema_of
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import Knob
from pytest_evo.settings import Settings


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def test_schema_of_carries_files_and_knobs():
    schema = schema_of(
        settings(
            artifact="./pipeline/",
            include=["**"],
            max_files=7,
            file=[
                {
                    "path": "./pipeline.toml",
                    "kind": "config",
                    "about": "stages",
                    "knob": [
                        {"key": "bm25.k1", "type": "float", "low": 0.4, "high": 2.5}
                    ],
                },
                {"path": "steps/*.py", "kind": "script", "edit": False, "max_bytes": 9},
            ],
        )
    )
    knob = Knob("pipeline.toml", "bm25.k1", "float", 0.4, 2.5)
    assert schema == ArtifactSchema(
        "pipeline",
        (
            FileRule("pipeline.toml", "stages", Kind.CONFIG, True, None, (knob,)),
            FileRule("steps/*.py", "", Kind.SCRIPT, False, 9),
        ),
        ("**",),
        5_000_000,
        7,
    )
    assert schema.knobs == (knob,)


def test_schema_of_without_an_artifact_says_what_to_write():
    with pytest.raises(ArtifactProblem, match="--evo-artifact=DIRECTORY"):
        schema_of(Settings())
    several = settings(targets=[{"name": "search", "artifact": "a"}])
    with pytest.raises(ArtifactProblem, match="Type --evo-target=search"):
        schema_of(several)


def test_rule_for_prefers_the_own_name_then_the_first_glob():
    rules = (FileRule("*.md", "any"), FileRule("a.md", "own"), FileRule("a*", "late"))
    schema = ArtifactSchema("x", rules)
    assert [
        getattr(rule_for(schema, p), "about", None)
        for p in ("a.md", "b.md", "a.x", "c")
    ] == [
        "own",
        "any",
        "late",
        None,
    ]


@pytest.mark.parametrize(
    ("schema", "path", "may"),
    [
        (ArtifactSchema("x"), "any/thing", True),
        (ArtifactSchema("x", include=("p/**",)), "p/a", True),
        (ArtifactSchema("x", include=("p",)), "p/a", True),
        (ArtifactSchema("x", include=("p/**",)), "q", False),
        (ArtifactSchema("x", (FileRule("*.md"),)), "new.md", True),
        (ArtifactSchema("x", (FileRule("*.md"),)), "new.py", False),
        (ArtifactSchema("x", (FileRule("*.md", edit=False),)), "a.md", False),
        (ArtifactSchema("x", (FileRule("*.md"),), ("p/**",)), "a.md", False),
    ],
)
def test_editable_is_what_is_declared(schema, path, may):
    assert editable(schema, path) is may


def place(root: Path, name: str = "art") -> None:
    (root / name).mkdir(parents=True)
    (root / name / "prompt.md").write_text("x")


def test_locate_finds_the_directory(tmp_path):
    place(tmp_path, "deep/art")
    found = tmp_path / "deep" / "art"
    assert locate(tmp_path, ArtifactSchema("deep/art")) == found
    assert locate(tmp_path, ArtifactSchema(str(found))) == found


def test_locate_names_what_said_it(tmp_path):
    for typed, said in ((True, "Type --evo-artifact="), (False, "Write artifact = ")):
        with pytest.raises(ArtifactProblem, match=said):
            locate(tmp_path, ArtifactSchema("nowhere"), typed=typed)


def test_locate_refuses_with_what_to_do(tmp_path):
    root = tmp_path / "root"
    place(root)
    place(tmp_path, "outside")
    (root / "empty" / "__pycache__").mkdir(parents=True)
    (root / "empty" / "__pycache__" / "x.pyc").write_text("")
    (root / "file").write_text("")
    (root / "link").symlink_to("art")
    (root / "away").symlink_to("../outside")
    place(root, "art/sub")
    problems = {
        "gone": "does not exist",
        "empty": "has no file",
        "../outside": "outside the rootdir",
        str(tmp_path / "outside"): "outside the rootdir",
        ".": "is the rootdir itself",
        "art/..": "is the rootdir itself",
        "file": "is a file",
        "link": "is a link",
        "away": "is a link",
        "link/sub": "is a link or behind one",
    }
    for directory, told in problems.items():
        with pytest.raises(ArtifactProblem, match=told):
            locate(root, ArtifactSchema(directory))
    with pytest.raises(ArtifactProblem, match="no file that include"):
        locate(root, ArtifactSchema("art", include=("prompts/**",)))
