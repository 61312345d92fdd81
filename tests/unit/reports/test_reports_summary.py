from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from report_runs import grown_run

from pytest_evo.events import NoiseMeasured
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import START
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.summary import summary_markdown

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


def with_claim(run: RunReport, **changes) -> RunReport:
    claim = replace(run.final.claim, **changes)
    return replace(run, final=replace(run.final, claim=claim))


def with_change(run: RunReport, entry: ChangelogEntry) -> RunReport:
    start, winner, *rest = run.candidates
    return replace(run, candidates=(start, replace(winner, changelog=(entry,)), *rest))


def test_summary_makes_the_claim_and_shows_its_weight():
    text = summary_markdown(grown_run())
    assert text.startswith("## pytest-evo: a better `prompts`\n\nAnswer politely.\n")
    assert "**start 0.500 -> winner 0.750 on test, 2 cases: +0.250" in text
    assert "The interval includes zero" in text
    assert "Better on 1, worse on 1, the same on 0 of 2 cases." in text
    assert "- `tests/evals/test_a.py::TestIt::test_x[5]`" in text
    assert "```diff\n--- a/x.txt" in text
    assert "13 rollouts: baseline 6, child 7." in text
    assert "| suite | 6 | 90 | 0 | 0.0 | 0.0600 |" in text
    assert "pytest-evo apply last" in text


def test_summary_says_in_sample_where_it_is():
    text = summary_markdown(with_claim(grown_run(), in_sample=True, low=0.2))
    assert "IN-SAMPLE" in text
    assert "expect less" in text
    assert "includes zero" not in text


def test_summary_without_a_gain_makes_no_claim():
    run = grown_run(final=None)
    text = summary_markdown(replace(run, stop=replace(run.stop, winner=START)))
    assert "nothing better than `prompts` was found" in text
    assert "winner" not in text
    assert "apply" not in text


def test_summary_of_a_killed_run_says_so_and_how_to_go_on():
    text = summary_markdown(grown_run(final=None, stop=None))
    assert "was not measured" in text
    assert "pytest --evolve --evo-resume=last" in text


def test_summary_has_one_in_the_singular():
    run = grown_run(spent={"baseline": 1})
    run = with_claim(replace(run, stop=replace(run.stop, iterations=1)), cases=1)
    run = replace(run, noise=NoiseMeasured((), (), 0.0, maybe_cached=("a",)))
    text = summary_markdown(run)
    assert "Ended after 1 iteration:" in text
    assert "\n1 rollout: baseline 1." in text
    assert " of 1 case." in text
    assert "1 case with network access never varied" in text


def test_summary_tells_why_files_changed_along_the_descent():
    entry = ChangelogEntry("a.md", "shorter is better", "modified")
    text = summary_markdown(with_change(grown_run(), entry))
    assert "- `a.md` (modified): shorter is better" in text


def test_summary_warns_of_audit_metrics_and_of_caches():
    run = with_claim(grown_run(), audit={"polite": (0.9, 0.6)})
    run = replace(run, noise=NoiseMeasured((), (), 0.0, maybe_cached=("a", "b")))
    text = summary_markdown(run)
    assert "> **Warning:** the audit metric `polite` fell from 0.900 to 0.600" in text
    assert "2 cases with network access never varied" in text


def test_summary_fits_a_pull_request_however_big_the_diff_is():
    text = summary_markdown(grown_run(diff="+x\n" * 1_000_000))
    assert len(text) < 65_536
    assert "characters left out" in text


@settings(max_examples=60)
@given(ANY_TEXT)
def test_hostile_text_cannot_leave_its_place(text):
    clean = summary_markdown(hostile("x"))
    hurt = summary_markdown(hostile(text))
    assert headings(hurt) == headings(clean)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", hurt)
    assert not re.search("<(?![/=])[a-zA-Z!]", outside_code(hurt))


def hostile(text: str) -> RunReport:
    run = grown_run(diff=f"+{text}\n", objective=text or "x", artifact=text)
    run = with_claim(run, worse=(text,), audit={text: (1.0, 0.0)})
    run = with_change(run, ChangelogEntry(text, text or "x", "modified"))
    return replace(run, stop=replace(run.stop, reason=text, detail=text or "x"))


def outside_code(text: str) -> str:
    lines, closing = [], ""
    for line in text.split("\n"):
        ticks = re.match("```+", line)
        if not closing and ticks:
            closing = ticks.group()
        elif closing:
            closing = "" if line == closing else closing
        else:
            lines.append(re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert not closing
    return "\n".join(lines)


def headings(text: str) -> list[str]:
    lines = outside_code(text).split("\n")
    return [line.split(":")[0] for line in lines if line.startswith("#")]


def test_cases_without_a_score_at_the_baseline_are_named():
    text = summary_markdown(grown_run(left_out=(("a.py::test_x", "error"),)))
    assert "1 case neither passed nor failed on the start" in text
    assert "`a.py::test_x`" in text


def test_code_spans_stop_markup_mentions_and_backticks():
    text = summary_markdown(hostile("`</details> @everyone #1 ![x](http://y)"))
    found = outside_code(text)
    assert "@everyone" not in found
    assert "</details>" not in found
    assert "![x]" not in found
