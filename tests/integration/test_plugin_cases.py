"""Items to cases: choice, markers, fingerprints, ids; and cassettes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.models import Split
from pytest_evo.plugin.cases import Collected
from pytest_evo.plugin.cases import collected_marks
from pytest_evo.plugin.cassettes import cassette_problem
from pytest_evo.plugin.cassettes import replayed_cases


class Collector:
    """Turns the collected session into cases while it is still alive."""

    def __init__(self, read: Callable[[pytest.Session], object]) -> None:
        self.read = read
        self.result: object = None
        self.problem: SuiteProblem | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        try:
            self.result = self.read(session)
        except SuiteProblem as problem:
            self.problem = problem


@pytest.fixture
def collect(pytester: pytest.Pytester):
    def run(*args: str, read=collected_marks):
        collector = Collector(read)
        pytester.inline_run("--collect-only", "-q", *args, plugins=[collector])
        if collector.problem is not None:
            raise collector.problem
        return collector.result

    return run


def marks(collected: Collected) -> dict[str, object]:
    return {mark.id.split("::")[-1]: mark for mark in collected.marks}


def test_marked_tests_and_users_of_fixtures_are_the_cases(pytester, collect):
    pytester.makepyfile(
        test_a="""
        import pytest
        pytestmark = pytest.mark.evo(group="all", weight=2)
        @pytest.mark.evo(split="val", group="mine", repeats=2, timeout=3,
                         must_pass=True, deterministic=False)
        def test_said(): pass
        @pytest.mark.xdist_group("db")
        def test_group(): pass
        """,
        test_b="""
        import pytest
        @pytest.fixture
        def system(evo_artifact): return 1
        def test_uses(system): pass
        def test_plain(): pass
        """,
    )
    collected = collect()
    found = marks(collected)
    assert list(found) == ["test_said", "test_group", "test_uses"]
    assert collected.how.startswith("3 of 4 tests marked evo or using")
    said = found["test_said"]
    assert (said.split, said.group, said.weight) == (Split.VAL, "mine", 2.0)
    assert (said.repeats, said.timeout, said.must_pass) == (2, 3.0, True)
    assert said.deterministic is False
    assert (said.file, said.line) == ("test_a.py", 3)
    assert found["test_group"].exclusive == "db"
    assert found["test_group"].group == "all"
    assert set(collected.items) == {mark.id for mark in collected.marks}


def test_without_any_mark_all_tests_are_cases(pytester, collect):
    pytester.makepyfile("def test_a(): pass\ndef test_b(): pass")
    collected = collect()
    assert len(collected.marks) == 2
    assert collected.how.startswith("all tests: none is marked evo")


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("splt='val'", "no keyword 'splt': did you mean split"),
        ("nonsense=1", "no keyword 'nonsense': remove it"),
        ("'val'", "takes keywords only"),
        ("split='dev'", "'dev' is no split; write one of 'train', 'val', 'test'"),
        ("weight=0", "weight=0.*a number above 0"),
        ("weight=float('nan')", "a number above 0"),
        ("timeout='1m'", "a number above 0"),
        ("repeats=True", "a whole number of at least 1"),
        ("repeats=1.5", "a whole number of at least 1"),
        ("group=3", "write a text"),
        ("must_pass=1", "True or False"),
    ],
)
def test_marker_mistakes_name_the_test(pytester, collect, mark, said):
    pytester.makepyfile(
        test_m=f"import pytest\n@pytest.mark.evo({mark})\ndef test_it(): pass\n"
    )
    with pytest.raises(SuiteProblem, match=rf"test_m.py::test_it: .*{said}"):
        collect()


def test_marker_mistake_of_many_cases_is_told_once(pytester, collect):
    pytester.makepyfile(
        test_m="""
        import pytest
        @pytest.mark.parametrize("n", range(9))
        @pytest.mark.evo(spilt="val")
        def test_it(n): pass
        @pytest.mark.evo(weight=0)
        def test_other(): pass
        """
    )
    with pytest.raises(SuiteProblem) as caught:
        collect()
    first, second = str(caught.value).splitlines()
    assert "test_it[0], test_m.py::test_it[1]" in first
    assert "and 6 more: @pytest.mark.evo has no keyword 'spilt'" in first
    assert second.startswith("test_m.py::test_other: @pytest.mark.evo(weight=0)")


def test_split_hook_fills_in_where_no_marker_speaks(pytester, collect):
    pytester.makeconftest(
        """
        def pytest_evo_split(items):
            return {item.nodeid: "test" for item in items if "gold" in item.name}
        """
    )
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.evo(split="train")
        def test_gold_said(): pass
        @pytest.mark.evo
        def test_gold(): pass
        @pytest.mark.evo
        def test_other(): pass
        """
    )
    found = marks(collect())
    assert [mark.split for mark in found.values()] == [Split.TRAIN, Split.TEST, None]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{'x.py::y': 'val'}", "'x.py::y', which was not collected"),
        ("{items[0].nodeid: 'dev'}", "'dev' is no split"),
        ("['val']", "return a mapping"),
    ],
)
def test_split_hook_mistakes_are_told(pytester, collect, answer, said):
    pytester.makeconftest(f"def pytest_evo_split(items): return {answer}")
    pytester.makepyfile("def test_it(): pass")
    with pytest.raises(SuiteProblem, match=said):
        collect()


def test_doubled_ids_are_refused(pytester, collect):
    pytester.makeconftest(
        """
        import pytest
        class Item(pytest.Item):
            def runtest(self): pass
        class File(pytest.File):
            def collect(self):
                for name in ("a", "b", "a"):
                    yield Item.from_parent(self, name=name)
        def pytest_collect_file(parent, file_path):
            if file_path.suffix == ".yaml":
                return File.from_parent(parent, path=file_path)
        """
    )
    pytester.makefile(".yaml", prompts="x")
    with pytest.raises(SuiteProblem, match=r"prompts.yaml::a \(2 tests\)"):
        collect()


def test_loadgroup_suffix_is_no_part_of_the_id(pytester, collect):
    pytester.makeconftest(
        """
        def pytest_collection_modifyitems(items):
            for item in items:
                item._nodeid = item.nodeid + "@db"
        """
    )
    pytester.makepyfile(
        test_g="""
        import pytest
        @pytest.mark.xdist_group(name="db")
        @pytest.mark.parametrize("who", ["a@db"])
        def test_it(who): pass
        """
    )
    assert [mark.id for mark in collect().marks] == ["test_g.py::test_it[a@db]"]


def test_fingerprint_follows_parameters_source_and_conftests(pytester, collect):
    def prints() -> list[str]:
        return [mark.fingerprint for mark in collect().marks]

    source = """
        import pytest
        class Thing: pass
        @pytest.mark.parametrize("x", [1, {"b", "a", "c"}, Thing()], ids=list("abc"))
        def test_it(x): pass
        """
    sub = pytester.mkdir("sub")
    pytester.makepyfile(**{"sub/test_f": source})
    first = prints()
    assert len(set(first)) == 3
    assert prints() == first
    pytester.makepyfile(**{"sub/test_f": source.replace("[1,", "[2,")})
    changed = prints()
    assert changed[0] != first[0]
    pytester.makepyfile(**{"sub/test_f": source})
    assert prints() == first
    pytester.mkdir("beside").joinpath("conftest.py").write_text("x = 1")
    assert prints() == first
    for conftest in (pytester.path / "conftest.py", sub / "conftest.py"):
        before = prints()
        conftest.write_text("y = 1")
        assert set(prints()).isdisjoint(before)


def test_fingerprint_is_the_same_in_every_process(pytester, monkeypatch):
    pytester.makeconftest(
        """
        from pytest_evo.plugin.cases import collected_marks
        def pytest_collection_finish(session):
            for mark in collected_marks(session).marks:
                print("print", mark.fingerprint)
        """
    )
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("x", [frozenset("abcdef"), {"s": {"x", "y"}}, object])
        def test_it(x): pass
        """
    )
    seen = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        result = pytester.runpytest_subprocess("-s", "--collect-only")
        seen.append([line for line in result.outlines if line.startswith("print")])
    assert len(seen[0]) == 3
    assert seen[0] == seen[1]


VCR = """
import pytest
def pytest_addoption(parser):
    parser.addoption("--record-mode", default=None)
    parser.addoption("--disable-recording", action="store_true")
def pytest_configure(config):
    config.addinivalue_line("markers", "vcr: a cassette")
"""


@pytest.mark.parametrize(
    ("mark", "args", "expected"),
    [
        ("vcr", [], 1),
        ("vcr(record_mode='once')", [], 1),
        ("vcr(record_mode='all')", [], 0),
        ("vcr", ["--record-mode=rewrite"], 0),
        ("vcr", ["--disable-recording"], 0),
        ("vcr('elsewhere.yaml')", [], 1),
        ("skip", [], 0),
    ],
)
def test_replay_only_cassettes_are_found(pytester, collect, mark, args, expected):
    pytester.makeconftest(VCR)
    pytester.makepyfile(
        test_v=f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n"
    )
    folder = pytester.mkdir("cassettes")
    (folder / "test_v").mkdir()
    (folder / "test_v" / "test_it.yaml").write_text("interactions: []")
    replays = collect(*args, read=lambda session: replayed_cases(session.items))
    assert len(replays) == expected


def test_cassette_problem_says_what_to_do(pytester, collect):
    pytester.makeconftest(VCR)
    pytester.makepyfile(
        test_v="import pytest\n@pytest.mark.vcr\ndef test_it(): pass\n"
        "@pytest.mark.vcr\ndef test_unrecorded(): pass\n"
    )
    pytester.mkdir("cassettes").joinpath("test_it.yaml").write_text("")
    problem = collect(read=lambda s: cassette_problem(s.items, s.config.rootpath))
    assert "1 case would get some" in problem
    assert "test_v.py::test_it: cassettes/test_it.yaml (record mode 'none')" in problem
    assert "skip_cassette_check = true" in problem
    (pytester.path / "cassettes" / "test_it.yaml").unlink()
    assert collect(read=lambda s: cassette_problem(s.items, s.config.rootpath)) is None
