"""The evals: is the passage that answers a question found, and how near the top?"""

from __future__ import annotations

import pytest
from metrics import ndcg
from metrics import recall
from questions import load_questions
from search import search


@pytest.mark.parametrize("question", load_questions(), ids=lambda question: question.id)
def test_answer_is_found(question, evo_artifact, evo_score, evo_trace):
    ranking = search(evo_artifact, question.text)
    evo_trace("ranking", question=question.text, gold=question.gold, found=ranking)
    evo_score("ndcg@10", ndcg(ranking, question.gold))
    evo_score("recall@10", recall(ranking, question.gold), audit=True)
    assert set(question.gold).intersection(ranking), (
        f"none of {', '.join(question.gold)} is among the first ten of "
        f"{question.text!r}: {', '.join(ranking) or 'nothing found'}"
    )
