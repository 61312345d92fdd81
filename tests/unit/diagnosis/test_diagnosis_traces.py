from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.diagnosis.brief import failures_text
from pytest_evo.diagnosis.rendering import trace_text
from pytest_evo.diagnosis.traces import cut_trace
from pytest_evo.diagnosis.traces import FAILING
from pytest_evo.diagnosis.traces import make_trace
from pytest_evo.diagnosis.traces import make_traces
from pytest_evo.diagnosis.traces import PASSING
from pytest_evo.diagnosis.traces import Tracing
from pytest_evo.diagnosis.traces import without_decorators
from pytest_evo.evidence import Trace
from pytest_evo.models import Candidate
from pytest_evo.models import Detail
from pytest_evo.models import Metric
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import TraceStep
from pytest_evo.models import Usage

TEXT = st.text(max_size=800)


def rollout(case: str = "t.py::a", score: float = 0.0, trace: str = "") -> Rollout:
    outcome = Outcome.PASSED if score == 1 else Outcome.FAILED
    return Rollout(
        "c0000",
        "t",
        case,
        0,
        outcome,
        score,
        metrics=(Metric("recall", 0.25),),
        usage=Usage(calls=2, input_tokens=30, output_tokens=4),
        reach=Reach(("p.md",), exact=False),
        trace=trace or None,
    )


def failed(report: str, message: str = "", **sections: str) -> Detail:
    phase = Phase("call", "failed", 0.1, message, report, tuple(sections.items()))
    return Detail((Phase("setup", "passed", 0.1, longrepr="not shown"), phase))


def test_trace_says_what_a_rollout_did() -> None:
    detail = Detail(
        failed("E  boom", "AssertionError: boom", stdout="asked", log=" \n").phases,
        (
            TraceStep("search", {"k": 3, "q": "où\nça"}),
            TraceStep("model call", {"model": "m", "tokens": 34}),
        ),
        ("careful",),
    )
    trace = make_trace(rollout(), detail)
    assert trace.failure == "AssertionError: boom\nE  boom"
    assert trace.output == (("stdout", "asked"), ("warnings", "careful"))
    assert trace.steps == 'search {"k": 3, "q": "où\\nça"}'
    assert trace.model_calls == 'model call {"model": "m", "tokens": 34}'
    assert (trace.files, trace.certain) == (("p.md",), False)
    assert (trace.calls, trace.tokens) == (2, 34)
    text = trace_text(trace)
    assert "`p.md`; others could have been read unseen" in text
    assert "Calls of models: 2 (34 tokens)." in text
    assert "Metrics: recall 0.25." in text
    assert "not shown" not in text


def test_message_that_the_report_repeats_is_told_once() -> None:
    assert make_trace(rollout(), failed("E  boom", "boom")).failure == "E  boom"


@given(TEXT, TEXT, TEXT, st.lists(TEXT, max_size=3), st.integers(-2, 3_000))
def test_cut_trace_never_exceeds_its_budget_and_keeps_ends_of_the_failure(
    failure: str, steps: str, calls: str, output: list[str], budget: int
) -> None:
    titled = tuple((str(number), text) for number, text in enumerate(output))
    whole = Trace("c", "t", 0, Outcome.FAILED, 0.0, failure, titled, steps, calls)
    short = cut_trace(whole, budget)
    assert short.size <= max(0, budget)
    if whole.size <= budget:
        assert short == whole
    elif failure and budget >= 40:
        assert short.failure[:1] == failure[:1]
        assert short.failure[-1:] == failure[-1:]
        assert len(short.failure) >= min(len(failure), budget // 2 - 40)
    assert [title for title, _ in short.output] == [title for title, _ in titled]


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), max_size=6),
    st.integers(0, 60_000),
)
def test_traces_together_stay_in_their_budget_and_failures_come_first(
    sizes: list[tuple[int, bool]], total: int
) -> None:
    details = {f"d{n}": failed("x" * size) for n, (size, _) in enumerate(sizes)}
    rollouts = tuple(
        rollout(f"t.py::{n}", 1.0 if passed else 0.0, f"d{n}")
        for n, (_, passed) in enumerate(sizes)
    )
    node = Node(Candidate("c0000", "t"), rollouts)
    traces = make_traces([node], details.__getitem__, total=total)
    assert sum(trace.size for trace in traces) <= total
    assert all(t.size <= (FAILING if t.failed else PASSING) for t in traces)
    order = [trace.failed for trace in traces]
    assert order == sorted(order, reverse=True)


def test_newest_node_comes_first() -> None:
    nodes = [Node(Candidate(f"c000{n}", "t"), (rollout(),)) for n in range(2)]
    traces = make_traces(
        [
            nodes[0],
            Node(
                nodes[1].candidate,
                (Rollout("c0001", "t", "t.py::a", 0, Outcome.FAILED, 0.0),),
            ),
        ]
    )
    assert [trace.node for trace in traces] == ["c0001", "c0000"]


def test_secrets_are_taken_out_before_a_cut_could_split_them() -> None:
    key = "sk-" + "a1" * 30
    detail = failed("x" * (2 * FAILING // 3) + key + "y" * FAILING, key, stdout=key)
    node = Node(Candidate("c0000", "t"), (rollout(trace="d"),))
    (trace,) = make_traces(
        [node], lambda name: detail, redact=lambda text: text.replace(key, "[redacted]")
    )
    assert not any("a1a1" in text for text in trace.texts())


@pytest.mark.parametrize("at", [39_990, 40_010, 80_000, 119_990, 159_960])
def test_secret_where_a_very_long_text_is_broken_is_not_half_kept(at: int) -> None:
    key = "sk-" + "a1" * 30
    text = "x" * at + key + "y" * (160_000 - at)
    node = Node(Candidate("c0000", "t"), (rollout(trace="d"),))
    (trace,) = make_traces(
        [node],
        lambda name: failed(text),
        redact=lambda one: one.replace(key, "[redacted]"),
    )
    assert not any("a1" in one for one in trace.texts())
    assert trace.size <= FAILING


@given(TEXT, TEXT, st.integers(0, 100))
def test_trace_with_room_for_all_of_it_is_shown_whole(
    report: str, said: str, more: int
) -> None:
    trace = make_trace(rollout(), failed(report, stdout=said))
    assert trace_text(trace, trace.size + more) == trace_text(trace)
    assert failures_text([trace], 100_000) == trace_text(trace)
    assert failures_text([trace], 100_000) == trace_text(trace)


# -- kept traces ---------------------------------------------------------------------


class Details:
    def __init__(self, **details: Detail) -> None:
        self.details = details
        self.read: list[str] = []

    def __call__(self, rollout: Rollout) -> Detail:
        self.read.append(str(rollout.trace))
        return self.details[str(rollout.trace)]


def test_trace_is_made_once_for_equal_rollouts() -> None:
    details = Details(d=failed("E  boom"))
    tracing = Tracing(details)
    first = tracing.of(rollout(trace="d"))
    assert first == make_trace(rollout(trace="d"), failed("E  boom"))
    assert tracing.of(rollout(trace="d")) is first
    assert details.read == ["d"]
    assert tracing.of(rollout(score=0.5, trace="d")).score == 0.5
    assert details.read == ["d", "d"]


def test_trace_of_a_detail_that_could_not_be_read_is_not_kept() -> None:
    details = Details(d=Detail(warnings=("d cannot be read",)))
    tracing = Tracing(details)
    assert tracing.of(rollout(trace="d")).failure == ""
    details.details["d"] = failed("E  boom")
    assert tracing.of(rollout(trace="d")).failure == "E  boom"


def test_detail_that_a_rollout_brings_is_not_read() -> None:
    details = Details()
    brought = replace(rollout(trace="d"), detail=failed("E  boom"))
    assert Tracing(details).of(brought).failure == "E  boom"
    assert Tracing(details).of(rollout()).failure == ""
    assert details.read == []


def test_kept_traces_are_bounded_and_the_oldest_go_first() -> None:
    details = Details(**{name: failed(name * 3_000) for name in "abc"})
    tracing = Tracing(details, most=11_000)
    for name in "ababcb":
        tracing.of(rollout(trace=name))
    assert details.read == ["a", "b", "c"]
    tracing.of(rollout(trace="a"))
    assert details.read == ["a", "b", "c", "a"]


def test_trace_above_the_bound_is_made_and_not_kept() -> None:
    details = Details(a=failed("a" * 3_000))
    tracing = Tracing(details, most=100)
    assert tracing.of(rollout(trace="a")) == tracing.of(rollout(trace="a"))
    assert details.read == ["a", "a"]


REPORT = """\
x = 1, answer = 'Paris'

    @pytest.mark.parametrize(
        "question,answer",
        [
            ("capital of France", "Paris"),
            ("capital of Peru", "Lima"),
        ],
    )
    @pytest.mark.evo
    def test_answer(question, answer, evo_artifact):
>       assert ask(question) == answer
E       AssertionError: assert 'Rome' == 'Paris'

test_a.py:12: AssertionError
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

        @cached(["Lima"])
        def ask(question):
>           return table @ question
E           TypeError: unsupported

test_a.py:3: TypeError"""


def test_decorators_are_left_out_of_a_report_and_nothing_else_is() -> None:
    kept = without_decorators(REPORT)
    assert "Lima" not in kept
    assert kept.count("[decorators left out]") == 2
    for line in (
        "x = 1, answer = 'Paris'",
        "    def test_answer(question, answer, evo_artifact):",
        ">       assert ask(question) == answer",
        "        def ask(question):",
        ">           return table @ question",
        "test_a.py:3: TypeError",
    ):
        assert line in kept.split("\n")


def test_text_in_a_decorator_that_looks_like_a_definition_does_not_end_it() -> None:
    report = textwrap.indent(
        '@pytest.mark.parametrize("code", [\n    """\n    def f(): pass\n    Lima\n'
        '    """,\n])\nasync def test_code(code):\n    assert code\n',
        "    ",
    )
    kept = without_decorators(report)
    assert "Lima" not in kept
    assert "    async def test_code(code):\n" in kept


@given(st.text(alphabet=" @>dEef(x)\n", max_size=200))
def test_report_without_decorators_stays_as_it_is(report: str) -> None:
    lines = [line for line in report.split("\n") if not line.lstrip().startswith("@")]
    plain = "\n".join(lines)
    assert without_decorators(plain) == plain


@pytest.mark.parametrize("value", [float("nan"), object(), {1: "a"}, "\ud800"])
def test_step_with_any_data_becomes_text(value: object) -> None:
    detail = Detail(steps=(TraceStep("odd", {"value": value}),))  # type: ignore[dict-item]
    assert make_trace(rollout(), detail).steps.startswith("odd {")
