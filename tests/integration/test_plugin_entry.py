"""The plugin as pytest loads it: options, marker, fixtures, what a session changes."""

from __future__ import annotations

import pytest

from pytest_evo.settings import Settings

PROJECT = """
[tool.pytest_evo]
artifact = "prompts"
scripted = "proposals.py"
"""
WHOLE_NUMBERS = (
    "--budget-rollouts",
    "--budget-train-rollouts",
    "--budget-iterations",
    "--budget-tokens",
    "--evo-slots",
    "--evo-chain-depth",
    "--evo-top-n",
    "--evo-batch",
    "--evo-repeats",
    "--evo-seed",
    "--evo-concurrency",
)


# ends a session when it has been prepared and its header is known
SEEN_ENOUGH = """
import pytest
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_report_header(config):
    for lines in (yield):
        print(*([lines] if isinstance(lines, str) else lines), sep="\\n")
    names = ("numprocesses", "maxfail", "lf", "stepwise")
    print("seen", {name: getattr(config.option, name, None) for name in names})
    pytest.exit("seen enough", returncode=0)
def pytest_xdist_auto_num_workers(config):
    return 7
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.mkdir("prompts").joinpath("a.md").write_text("hello")
    pytester.makefile(".toml", pyproject=PROJECT)
    pytester.makepyfile(proposals="def propose(request): return 'nothing'")
    return pytester


def test_fixtures_work_in_a_plain_run(project):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.evo(split="val")
        def test_it(evo_artifact, evo_score, evo_trace, evo_usage, request):
            assert (evo_artifact / "a.md").read_text() == "hello"
            evo_score(0.25)
            evo_score("recall", 0.4)
            evo_score("recall", 0.5)
            evo_score("honesty", 1, audit=True)
            evo_trace("asked", value=object())
            evo_usage(tokens=10, input_tokens=4, usd=0.5)
            evo_usage(output_tokens=1, usd=0.25)
            assert request.node.user_properties == [
                ("evo.score", 0.25),
                ("evo.score.recall", 0.5),
                ("evo.audit.honesty", 1.0),
                ("evo.tokens", 11),
                ("evo.cost.usd", 0.75),
            ]
        """
    )
    result = project.runpytest("-W", "error", "--strict-markers", "--junitxml=x.xml")
    result.assert_outcomes(passed=1)
    assert 'name="evo.score.recall" value="0.5"' in (project.path / "x.xml").read_text()


def test_tracebacks_name_the_fixtures_without_addresses(project):
    project.makepyfile(
        """
        def test_all(evo_score, evo_trace, evo_usage):
            assert False
        """
    )
    result = project.runpytest()
    wanted = "evo_score = evo_score, evo_trace = evo_trace, evo_usage = evo_usage"
    result.stdout.fnmatch_lines([wanted])
    assert "object at 0x" not in result.stdout.str()


def test_mistakes_in_scores_and_usage_fail_the_test(project):
    project.makepyfile(
        """
        def test_range(evo_score): evo_score(1.1)
        def test_text(evo_score): evo_score("0.5")
        def test_name(evo_score): evo_score(["a"], 0.5)
        def test_empty_name(evo_score): evo_score(" ", 0.5)
        def test_audit(evo_score): evo_score(0.5, audit=True)
        def test_tokens(evo_usage): evo_usage(tokens=1, input_tokens=2)
        def test_negative(evo_usage): evo_usage(tokens=-1)
        def test_usd(evo_usage): evo_usage(usd=float("nan"))
        def test_unpriced(evo_usage, request):
            evo_usage(tokens=1)
            assert request.node.user_properties == [("evo.tokens", 1)]
        """
    )
    result = project.runpytest()
    result.assert_outcomes(failed=8, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*ValueError: 1.1 given as score for 'score' is outside [[]0, 1]*",
            "*TypeError: None given as score for '0.5' is no number*",
            "*ValueError: evo_score(..., audit=True) needs a name*",
            "*evo_usage: tokens=1 is less than input_tokens=2*",
        ]
    )


def test_artifact_follows_option_environment_and_target(project, monkeypatch):
    for name in ("other", "third", "fourth"):
        project.mkdir(name)
    project.makepyfile("def test_it(evo_artifact): print('is', evo_artifact.name)")
    project.runpytest("-s", "--evo-artifact=other").stdout.fnmatch_lines(["*is other*"])
    monkeypatch.setenv("PYTEST_EVO_ARTIFACT", str(project.path / "third"))
    project.runpytest("-s").stdout.fnmatch_lines(["*is third*"])
    monkeypatch.delenv("PYTEST_EVO_ARTIFACT")
    target = '[[tool.pytest_evo.target]]\nname = "t"\nartifact = "fourth"\n'
    project.makefile(".toml", pyproject=PROJECT + target)
    project.runpytest("-s", "--evo-target=t").stdout.fnmatch_lines(["*is fourth*"])
    project.runpytest("--evo-target=u").stdout.fnmatch_lines(
        ["*--evo-target=u: no such target (declared: t)*"]
    )


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("", "*evo_artifact: no artifact is declared*--evo-artifact=DIR*"),
        (PROJECT, "*evo_artifact: the artifact 'prompts' is no directory*"),
        ("a = ", "*pyproject.toml*not valid TOML*"),
        ("[tool.pytest_evo]\nartefact = 'p'", "*unknown key 'artefact'. Did you mean*"),
        ("[tool.pytest-evo]\nartifact = 'p'", "*nobody reads [[]tool.pytest-evo*"),
        (
            "[[tool.pytest_evo.target]]\nname = 'a'\nartefact = 'p'",
            "*unknown key 'target[[]0].artefact'. Did you mean*",
        ),
    ],
)
def test_missing_artifact_says_what_to_type(pytester, toml, said):
    (pytester.path / "pyproject.toml").write_text("[tool]\n" if toml == "" else toml)
    pytester.makepyfile("def test_it(evo_artifact): pass")
    result = pytester.runpytest("-c", "/dev/null", "--rootdir", str(pytester.path))
    result.assert_outcomes(errors=1)
    text = " ".join(result.stdout.str().split())
    result.stdout.fnmatch_lines([said.split("*--evo")[0].rstrip("*") + "*"])
    assert "Traceback" not in text


@pytest.mark.parametrize("value", ["-1", "1.5", "abc", "1e3", "", "٣", "1_0"])
def test_whole_numbers_refuse_everything_else(pytester, value):
    for option in WHOLE_NUMBERS:
        with pytest.raises(pytest.UsageError, match="not a whole number of at least"):
            pytester.parseconfig(f"{option}={value}")


@pytest.mark.parametrize("option", WHOLE_NUMBERS)
def test_whole_numbers_are_asked_for_with_the_settings_own_example(pytester, option):
    name = option.removeprefix("--").removeprefix("evo-").replace("-", "_")
    (example,) = Settings.model_fields[name].examples
    with pytest.raises(pytest.UsageError, match=f"like {example}\\n"):
        pytester.parseconfig(f"{option}=2k")


@pytest.mark.parametrize(
    "option",
    [
        "--evo-slots=0",
        "--budget-time=fast",
        "--budget-time=",
        "--budget-usd=nan",
        "--budget-usd=-1",
        "--evo-timeout=0",
        "--evo-artifact=",
        "--evo-gate=",
        "--evo-isolation=none",
        "--evo-gate-policy=lenient",
    ],
)
def test_unusable_values_exit_with_4(pytester, option):
    result = pytester.runpytest(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*error: argument *"])


def test_options_never_swallow_a_path(pytester):
    pytester.makepyfile(test_a="def test_it(): pass")
    config = pytester.parseconfig("--evo-gate", "baseline", "test_a.py")
    assert config.args == ["test_a.py"]
    with pytest.raises(pytest.UsageError, match="expected one argument"):
        pytester.parseconfig("--evo-gate")


def test_option_overrides_are_settings_that_were_given(pytester):
    from pytest_evo.plugin.entry import option_overrides
    from pytest_evo.settings import Settings

    config = pytester.parseconfig(
        "--evolve", "--budget-time=90m", "--evo-top-n=3", "--evo-apply", "--evo-seed=0"
    )
    given = option_overrides(config)
    assert given == {"budget_time": "90m", "top_n": 3, "apply": True, "seed": 0}
    assert option_overrides(pytester.parseconfig()) == {}
    all_names = {
        name.removeprefix("evo_")
        for name in vars(config.option)
        if name.startswith(("evo_", "budget_"))
    }
    assert all_names <= set(Settings.model_fields)
    assert Settings.model_validate(given).budget_time == 5400


def test_budget_without_evolve_is_said_to_do_nothing(pytester):
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest("--budget-rollouts=10")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["evo: without --evolve or --evo-gate nothing is done with --budget-rollouts"]
    )


@pytest.mark.parametrize(
    ("args", "workers", "said"),
    [
        (["--evolve"], 7, ""),
        (["--evolve", "-n", "3"], 3, ""),
        (["--evolve", "-n0"], 0, ""),
        (["--evolve", "--pdb"], 0, "--pdb needs this process"),
        (["--evolve", "-p", "no:xdist"], None, "xdist is not loaded"),
        (["--evo-baseline-update"], 7, ""),
    ],
)
def test_session_chooses_workers(project, args, workers, said):
    conftest = SEEN_ENOUGH
    if "no:xdist" in args:
        conftest = conftest.replace("pytest_xdist", "no_xdist")
    project.makeconftest(conftest)
    result = project.runpytest(*args, "-s")
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines([f"seen {{'numprocesses': {workers}, *"])
    assert said in result.stdout.str()


def test_stop_options_are_ignored_and_said_once(project):
    project.makeconftest(SEEN_ENOUGH)
    project.makepyfile("def test_it(): pass")
    result = project.runpytest("--evolve", "-n0", "-x", "--lf", "--sw", "-s")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*'maxfail': 0, 'lf': False, 'stepwise': False}"])
    lines = [line for line in result.outlines if "ignored:" in line]
    assert lines == [
        "evo: -x/--maxfail, --lf, --sw ignored: every case has to be measured"
    ]


def test_coverage_floor_is_ignored(project):
    project.makeconftest(
        SEEN_ENOUGH
        + """
class Coverage:
    class options:
        cov_fail_under = 99.0
def pytest_addoption(pluginmanager):
    pluginmanager.register(Coverage(), "_cov")
def pytest_unconfigure():
    print("floor", Coverage.options.cov_fail_under)
"""
    )
    result = project.runpytest("--evolve", "-n0", "-p", "no:pytest_cov", "-s")
    result.stdout.fnmatch_lines(["evo: --cov-fail-under ignored*", "floor 0"])


@pytest.mark.parametrize(
    ("toml", "case", "args", "said"),
    [
        ("[tool]\n", "", [], "no artifact is declared"),
        (PROJECT, '@pytest.mark.evo(splt="val")', [], "did you mean split?"),
        (PROJECT, "", ["--budget-rollouts=1"], "Give at least 9"),
    ],
    ids=["at-once", "in-collection", "in-the-loop"],
)
def test_usage_problems_exit_with_4(project, toml, case, args, said):
    project.makefile(".toml", pyproject=toml)
    project.makepyfile(
        f"import pytest\n{case}\ndef test_it(evo_artifact): assert not evo_artifact"
    )
    result = project.runpytest_subprocess("--evolve", "-n0", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shown = result.stderr.str() + result.stdout.str()
    assert said in shown
    assert "INTERNALERROR" not in shown


def test_plain_runs_load_nothing_heavy(project):
    project.makeconftest(
        """
        import sys
        def pytest_unconfigure(config):
            heavy = {"pydantic", "litellm", "optuna", "junitparser", "rich", "asyncio",
                     "numpy", "xdist.dsession", "tomlkit", "pytest_evo.models"}
            names = [plugin for plugin in config.pluginmanager.list_name_plugin()
                     if plugin[0].startswith("evo-")]
            print("loaded", sorted(heavy & set(sys.modules)), names)
        """
    )
    project.makepyfile("def test_it(evo_artifact, evo_score): evo_score(1)")
    # plugins installed beside this one load what they like
    result = project.runpytest_subprocess(
        "-s", "-p", "no:xdist", "-p", "no:anyio", "-p", "no:hypothesispytest",
        "-p", "no:pytest_cov",
    )  # fmt: skip
    result.stdout.fnmatch_lines(["loaded [[][]] [[][]]*"])
