from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from report_runs import grown_run

from pytest_evo.models import Usage
from pytest_evo.reports.metrics import metrics_text

ANY_TEXT = st.text(st.characters(codec=None, categories=None))
SAMPLE = re.compile(
    r'evo_[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
    r'(,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? -?[0-9.]+'
)


def test_metrics_have_figures_of_start_and_winner():
    lines = metrics_text(grown_run()).splitlines()
    assert 'evo_score{split="val",artifact="start"} 0.500000' in lines
    assert 'evo_score{split="val",artifact="winner"} 1.000000' in lines
    assert 'evo_gain{split="test"} 0.250000' in lines
    assert 'evo_gain_low{split="test"} -0.100000' in lines
    assert 'evo_rollouts{purpose="child"} 7' in lines
    assert 'evo_usd{role="suite"} 0.060000' in lines
    assert 'evo_candidates{status="rejected"} 1' in lines
    assert lines[-1] == "# EOF"


def test_unknown_prices_are_left_out():
    spent = Usage(1, 5, 2, 5, None, 1.5)
    text = metrics_text(grown_run(usage={"proposer": spent}))
    assert "evo_usd" not in text
    assert 'evo_tokens{role="proposer"} 10' in text
    assert 'evo_cached_tokens{role="proposer"} 2' in text
    assert 'evo_model_calls{role="proposer"} 1' in text
    assert 'evo_model_seconds{role="proposer"} 1.500000' in text


@given(ANY_TEXT, st.floats())
def test_metrics_are_open_metrics_whatever_names_are(name, value):
    run = grown_run(spent={name: 3})
    claim = replace(run.final.claim, audit={name: (0.5, 1.0)}, low=value)
    text = metrics_text(replace(run, final=replace(run.final, claim=claim)))
    families = []
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            families.append(line.split()[2])
        elif not line.startswith("# HELP "):
            assert SAMPLE.fullmatch(line), line
            assert re.match("[a-z_]+", line).group() == families[-1]
    assert len(set(families)) == len(families)
