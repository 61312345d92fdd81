"""``--evo-dry-run``: what a run would do and cost, without doing it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.engine.baseline import check_start_budget
from pytest_evo.engine.baseline import estimate
from pytest_evo.models import CaseMark
from pytest_evo.plugin import planning
from pytest_evo.plugin.task import Task
from pytest_evo.settings import Settings
from pytest_evo.wording import count


def dry_run_rows(
    task: Task, settings: Settings, marks: Sequence[CaseMark], how: str
) -> list[str]:
    """The plan of a run with its worst case, line by line.

    Args:
        task: what the run would do.
        settings: those of the task, complete.
        marks: the cases.
        how: how they were chosen.

    Raises:
        UsageProblem: the run itself would refuse to begin.
    """
    splits, split_how = planning.explicit_splits(marks, settings)
    plan = planning.make_plan(settings, task.schema, "", splits)
    limits, default = planning.make_limits(settings, marks, plan)
    check_start_budget(limits.rollouts, marks, plan)
    cost = estimate(marks, plan)
    texts = planning.limit_texts(limits, default)
    worst = (
        f"at most {count(limits.rollouts, 'rollout')}"
        if limits.rollouts is not None
        else "no limit on rollouts: give --budget-rollouts=N"
    )
    return [
        f"artifact: {task.schema.directory}",
        f"cases: {len(marks)} ({how})",
        f"split: {split_how}",
        f"proposer: {task.proposer_name}",
        f"slots: {plan.slots}",
        f"budget: {', '.join(f'{k} {v}' for k, v in texts.items())}",
        f"before the first proposal: {count(cost.cases, 'rollout')} for the baseline "
        f"and up to {cost.noise} to measure noise",
        f"kept for the final measurement: {count(cost.reserve, 'rollout')}, "
        "more if noisy",
        f"worst case: {worst}",
        "nothing was run; leave out --evo-dry-run to start",
    ]
