from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Proposal
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.protocols import ProposalKey
from pytest_evo.protocols import ProposalRequest
from pytest_evo.protocols import Request
from pytest_evo.testing.doubles import FakeEvaluator
from pytest_evo.testing.doubles import Killed
from pytest_evo.testing.doubles import ManualClock
from pytest_evo.testing.doubles import MemoryRollouts
from pytest_evo.testing.doubles import MemoryWorkshop
from pytest_evo.testing.doubles import ScriptedProposer


def request(name="r", tree="t", runs=(("a", 0), ("b", 0))):
    return Request(name, "c0000", tree, runs, Purpose.CHILD)


async def collect(evaluator, asked):
    return [rollout async for rollout in evaluator.submit(asked)]


def asked(iteration, step, workspace=Path("/memory/1-0-0")):
    return ProposalRequest(
        iteration,
        step,
        workspace,
        ArtifactSchema("artifact"),
        "",
        Candidate("c0000", "t"),
        (),
        (),
        (),
        None,
        Random(0),
        (),
    )


def test_clock_goes_when_told():
    clock = ManualClock(5)
    clock.advance(2.5)
    assert clock.elapsed() == 7.5


def test_workshop_computes_what_changed():
    shop = MemoryWorkshop()
    base = shop.add({"a": b"1", "b": b"2"})
    key = ProposalKey(1, 0)
    path = shop.open(key, base, (), ())
    shop.edit(path, lambda files: {"a": b"9", "c": b"3"})
    edit = shop.close(key, base, Proposal((ChangelogEntry("a", "why"),)))
    assert [(e.file, e.reason, e.change) for e in edit.changelog] == [
        ("a", "why", "modified"),
        ("b", "no reason given", "deleted"),
        ("c", "no reason given", "added"),
    ]
    assert shop.files(edit.tree) == {"a": b"9", "c": b"3"}
    assert (shop.size(edit.tree), shop.left_open) == (2, 0)
    assert shop.size(shop.empty()) == 0


def test_workshop_refuses_what_changes_nothing():
    shop = MemoryWorkshop()
    base = shop.add({"a": b"1"})
    shop.open(ProposalKey(1, 0), base, (), ())
    with pytest.raises(ProposalRefused, match="nothing changed"):
        shop.close(ProposalKey(1, 0), base, "because")
    assert shop.left_open == 0


def test_workshop_names_trees_by_their_content():
    shop = MemoryWorkshop()
    assert shop.add({"a": b"1", "b": b""}) == shop.add({"b": b"", "a": b"1"})
    assert shop.add({"a": b"1 1 b 0 "}) != shop.add({"a": b"", "b": b""})


def test_scripted_edits_follow_from_the_key_alone():
    shop = MemoryWorkshop()
    base = shop.add({"n": b"0"})
    edits = [lambda files, n=n: {"n": files["n"] + b"%d" % n} for n in (1, 2, 3)]
    proposer = ScriptedProposer(shop, edits)

    def made(iteration, step):
        key = ProposalKey(iteration, step)
        where = shop.open(key, base, (), ())
        answer = asyncio.run(proposer.propose(asked(iteration, step, where)))
        return shop.files(shop.close(key, base, answer).tree)["n"]

    assert [made(2, 0), made(1, 0), made(1, 2), made(2, 0)] == [
        b"02",
        b"01",
        b"03",
        b"02",
    ]
    with pytest.raises(ProposerExhausted):
        asyncio.run(proposer.propose(asked(4, 0)))
    with pytest.raises(ProposalRefused):
        asyncio.run(proposer.propose(asked(3, 1)))


def test_evaluator_gives_one_rollout_per_run():
    judge = FakeEvaluator(lambda tree, case, repeat: 1.0 if case == "a" else 0.25)
    found = asyncio.run(collect(judge, request()))
    assert [(r.case, r.outcome, r.score) for r in found] == [
        ("a", Outcome.PASSED, 1.0),
        ("b", Outcome.FAILED, 0.25),
    ]
    assert judge.executed == [("t", "a", 0), ("t", "b", 0)]


def test_evaluator_shuffles_the_order_of_ends_by_its_seed():
    def order(seed):
        judge = FakeEvaluator(lambda tree, case, repeat: 1.0, seed=seed)

        async def both():
            async with asyncio.TaskGroup() as group:
                for tree in "xyz":
                    group.create_task(collect(judge, request(tree, tree)))

        asyncio.run(both())
        return tuple(tree for tree, _, _ in judge.executed)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(8)}) > 1
    assert Counter(order(3)) == Counter("xxyyzz")


def test_evaluator_injects_faults_and_loss():
    judge = FakeEvaluator(
        lambda tree, case, repeat: Outcome.PASSED,
        fault=lambda asked, case, repeat: Outcome.LOST if case == "b" else None,
    )
    first, second = asyncio.run(collect(judge, request()))
    assert (first.score, second.score, second.started) == (1.0, None, False)
    asyncio.run(judge.cancel("r"))
    assert {r.outcome for r in asyncio.run(collect(judge, request()))} == {Outcome.LOST}


def test_evaluator_dies_where_it_is_told():
    judge = FakeEvaluator(lambda tree, case, repeat: 1.0, kill_after=1)
    with pytest.raises(Killed):
        asyncio.run(collect(judge, request()))
    assert len(judge.executed) == 1


def test_rollout_store_keeps_details_apart():
    store = MemoryRollouts()
    detail = Detail(warnings=("w",))
    kept = store.keep(Rollout("c", "t", "a", 0, Outcome.PASSED, 1.0, detail=detail))
    assert kept.detail is None
    assert store.detail(kept.trace) == detail
    assert store.keep(kept) is kept
