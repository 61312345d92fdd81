from __future__ import annotations

import asyncio
import json

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.errors import WorkerProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Reach
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry
from pytest_evo.plugin import messages
from pytest_evo.plugin.pools import base
from pytest_evo.plugin.pools import casualties
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.protocols import Request
from pytest_evo.store.blobs import MissingBlob

TREE = Tree("ab" * 32, (TreeEntry("a.txt", "file", 0o644, "cd" * 32, 3),))
A, B = "t.py::a", "t.py::b"


class Wire:
    """A worker that does what the test says."""

    def __init__(self, pool, name, cases=(A, B), groups=(), hello=True, kept=False):
        self.name = name
        self.sent = []
        self.killed = 0
        self.receiver = None
        pool.add_worker(name, self, self.kill)
        if hello:
            marks = tuple(
                CaseMark(case, "t.py", 1, "", exclusive=dict(groups).get(case))
                for case in cases
            )
            self.say(messages.Hello(name, 1, "elsewhere", marks, signals_kept=kept))

    def send(self, *data):
        self.sent += map(messages.decode, data)

    def listen(self, receiver):
        self.receiver = receiver

    def close(self):
        pass

    def descriptors(self):
        return ()

    def kill(self):
        self.killed += 1
        self.receiver(None)

    def say(self, message):
        self.receiver(messages.encode(message))

    def die(self):
        self.receiver(None)

    def runs(self):
        return [one for one in self.sent if isinstance(one, messages.Run)]

    def start(self, request, case=A, repeat=0):
        self.say(messages.Started(request, case, repeat))

    def finish(self, request, case=A, repeat=0, raw=None, **fields):
        raw = raw or RawRollout(Outcome.PASSED, 1.0)
        payload = json.dumps(raw.to_plain()).encode()
        self.say(messages.Finished(request, case, repeat, payload=payload, **fields))

    def done(self, request, **fields):
        self.say(messages.Done(request, **fields))


@pytest.fixture
def pool():
    pool = Pool(workers=2, grace=0.2)
    pool.set_source(lambda tree: TREE, lambda sha: b"abc")
    return pool


def request(name, *cases, purpose=Purpose.CHILD):
    runs = tuple((case, 0) for case in cases or (A,))
    return Request(name, "c0001", TREE.hash, runs, purpose)


async def collect(pool, wanted):
    return [rollout async for rollout in pool.submit(wanted)]


def ready(pool, **options):
    first, second = Wire(pool, "gw0", **options), Wire(pool, "gw1", **options)
    pool.wait_ready()
    pool.accept_cases(frozenset((A, B)))
    return first, second


def test_requests_go_to_the_least_loaded_worker(pool):
    first, second = ready(pool)

    async def scenario():
        tasks = [asyncio.create_task(collect(pool, request(name))) for name in "wxyz"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loads = [len(first.runs()), len(second.runs())]
        for _ in range(2):
            for worker in (first, second):
                for run in worker.runs():
                    worker.start(run.id)
                    worker.finish(run.id)
                    worker.done(run.id)
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        return loads

    assert asyncio.run(scenario()) == [1, 1]
    assert len(first.runs()) == len(second.runs()) == 2


def test_violation_marks_all_rollouts_of_its_process(pool):
    first, _ = ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r", A, B)))
        await asyncio.sleep(0.01)
        first.start("r", A)
        first.finish("r", A, reach=Reach(("a.txt",)), project_files=("x.py",))
        first.done("r", violation="a.txt was changed", more=True)
        first.start("r", B)
        first.finish("r", B)
        first.done("r")
        return await task

    one, two = asyncio.run(scenario())
    assert (one.violation, two.violation) == ("a.txt was changed", None)
    assert one.reach.files == ("a.txt",)
    assert one.detail.project_files == ("x.py",)
    assert one.worker == "gw0"


def test_death_of_a_worker_keeps_what_was_checked(pool):
    first, second = ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r", A, B, "t.py::c")))
        await asyncio.sleep(0.01)
        first.start("r", A)
        first.finish("r", A)
        first.done("r", more=True)
        first.start("r", B)
        first.finish("r", B)
        first.die()
        rows = await task
        again = asyncio.create_task(collect(pool, request("s")))
        await asyncio.sleep(0.01)
        second.finish("s")
        second.done("s")
        await again
        return rows

    rows = asyncio.run(scenario())
    assert [(row.outcome, row.started) for row in rows] == [
        (Outcome.PASSED, True),
        (Outcome.CRASHED, True),
        (Outcome.LOST, True),
    ]


def test_process_killed_before_its_last_check_is_not_believed(pool):
    first, _ = ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r", A)))
        await asyncio.sleep(0.01)
        first.start("r", A)
        first.finish("r", A)
        first.done("r", unchecked="killed by SIGKILL")
        return await task

    (row,) = asyncio.run(scenario())
    assert (row.outcome, row.score, row.violation) == (Outcome.CRASHED, None, None)
    assert row.detail.phases[0].message == "killed by SIGKILL"


def test_replacement_takes_over_what_waits(pool):
    first, second = ready(pool)

    async def scenario():
        tasks = [asyncio.create_task(collect(pool, request(name))) for name in "rst"]
        await asyncio.sleep(0.01)
        first.die()
        await asyncio.sleep(0.01)
        third = Wire(pool, "gw2")
        await asyncio.sleep(0.01)
        assert [run.id for run in third.runs()] == ["t"]
        for worker, name in ((second, "s"), (third, "t")):
            worker.finish(name)
            worker.done(name)
        return await asyncio.gather(*tasks)

    rows = [row for rows in asyncio.run(scenario()) for row in rows]
    assert [row.outcome for row in rows] == [
        Outcome.LOST,
        Outcome.PASSED,
        Outcome.PASSED,
    ]


def test_deaths_without_progress_end_every_stream(pool):
    ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r")))
        await asyncio.sleep(0.01)
        for at in range(20):
            Wire(pool, f"gw{at + 2}", hello=at % 2 == 0).die()
            await asyncio.sleep(0)
        with pytest.raises(WorkersLost, match="not one rollout"):
            await task
        with pytest.raises(WorkersLost):
            await collect(pool, request("s"))

    asyncio.run(scenario())


def test_full_disk_of_a_worker_ends_every_stream_and_believes_nothing(pool):
    first, _ = ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r", A, B)))
        await asyncio.sleep(0.01)
        first.start("r", A)
        first.finish("r", A)
        first.say(messages.Trouble(text="the disk is full"))
        with pytest.raises(WorkerProblem, match="gw0: the disk is full"):
            await task
        with pytest.raises(WorkerProblem):
            await collect(pool, request("s"))

    asyncio.run(scenario())


def test_worker_that_somebody_else_killed_is_not_the_candidates_fault():
    pool = Pool(workers=1, grace=0.2)
    pool.set_source(lambda tree: TREE, lambda sha: b"abc")

    async def scenario():
        for at in range(casualties.UNLUCKY):
            worker = Wire(pool, f"gw{at}", kept=True)
            await asyncio.sleep(0.01)
            task = asyncio.create_task(collect(pool, request(f"r{at}")))
            await asyncio.sleep(0.01)
            worker.start(f"r{at}")
            worker.die()
            assert [row.outcome for row in await task] == [Outcome.CRASHED]
            pool._casualties.forgive()  # others get on meanwhile
        worker = Wire(pool, "last", kept=True)
        await asyncio.sleep(0.01)
        rows = await collect(pool, request("again", A))
        assert not worker.runs()
        return rows

    (row,) = asyncio.run(scenario())
    assert row.outcome is Outcome.CRASHED
    assert row.violation is None


def test_candidate_that_takes_workers_with_it_is_not_run_again():
    pool = Pool(workers=1, grace=0.2)
    pool.set_source(lambda tree: TREE, lambda sha: b"abc")

    async def scenario():
        for at in range(casualties.DEADLY):
            worker = Wire(pool, f"gw{at}")
            await asyncio.sleep(0.01)
            task = asyncio.create_task(collect(pool, request(f"r{at}")))
            await asyncio.sleep(0.01)
            worker.start(f"r{at}")
            worker.die()
            assert [row.violation for row in await task] == [None]
        worker = Wire(pool, "last")
        await asyncio.sleep(0.01)
        condemned = await collect(pool, request("again", A, B))
        assert not worker.runs()
        return condemned

    rows = asyncio.run(scenario())
    assert [(row.case, row.outcome) for row in rows] == [
        (A, Outcome.CRASHED),
        (B, Outcome.CRASHED),
    ]
    assert all("killed 3 workers" in row.violation for row in rows)


def test_progress_forgives_deaths(pool):
    first, _ = ready(pool)

    async def scenario():
        rows = []
        for at in range(20):
            task = asyncio.create_task(collect(pool, request(f"r{at}")))
            await asyncio.sleep(0.01)
            first.finish(f"r{at}")
            first.done(f"r{at}")
            rows += await task
            Wire(pool, f"x{at}", hello=False).die()
        return rows

    rows = asyncio.run(scenario())
    assert [row.outcome for row in rows] == [Outcome.PASSED] * len(rows)


def test_silent_worker_is_killed_and_its_run_crashes(pool, monkeypatch):
    monkeypatch.setattr(base, "_WATCH", 0.05)
    first, second = ready(pool)
    pool.set_timeouts({A: 0.1})

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r")))
        await asyncio.sleep(0.01)
        first.start("r")
        return await task

    (row,) = asyncio.run(scenario())
    assert row.outcome is Outcome.CRASHED
    assert (first.killed, second.killed) == (1, 0)


def test_worker_with_other_cases_is_not_used(pool):
    ready(pool)

    async def scenario():
        tasks = [asyncio.create_task(collect(pool, request(name))) for name in "rst"]
        await asyncio.sleep(0.01)
        stranger = Wire(pool, "gw2", cases=(A,))
        await asyncio.sleep(0.01)
        for name in "rst":
            await pool.cancel(name)
        await asyncio.gather(*tasks)
        return stranger

    assert asyncio.run(scenario()).sent == [messages.Stop(now=True)]


def test_group_is_in_flight_once(pool):
    groups = {A: "db", B: "db"}
    first, second = ready(pool, groups=groups)

    async def scenario():
        tasks = [
            asyncio.create_task(collect(pool, request("r", A))),
            asyncio.create_task(collect(pool, request("s", B))),
        ]
        await asyncio.sleep(0.01)
        assert len(first.runs() + second.runs()) == 1
        first.finish("r", A)
        first.done("r")
        await asyncio.sleep(0.01)
        (worker,) = [
            one
            for one in (first, second)
            if one.runs()[-1:] and one.runs()[-1].id == "s"
        ]
        worker.finish("s", B)
        worker.done("s")
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_contents_go_with_the_first_request_and_again_when_asked_for(pool):
    first, _ = ready(pool)
    content = messages.Blob("cd" * 32, b"abc")

    async def ran(name):
        task = asyncio.create_task(collect(pool, request(name)))
        await asyncio.sleep(0.01)
        first.finish(name)
        first.done(name)
        await task

    async def scenario():
        await ran("r")
        assert first.runs()[0].manifest == TREE.entries
        await ran("s")
        first.say(messages.Need("s", ("cd" * 32,)))
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    kinds = [one.kind for one in first.sent]
    assert kinds == ["blob", "run", "run", "blob"]
    assert first.sent[0] == first.sent[-1] == content


def test_content_that_is_lost_ends_the_run(pool):
    ready(pool)

    def gone(sha):
        raise MissingBlob(f"the file content {sha} is missing")

    pool.set_source(lambda tree: TREE, gone)
    with pytest.raises(MissingBlob, match="cdcd"):
        asyncio.run(collect(pool, request("r")))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"[" * 10_000])
def test_damaged_rollout_is_crashed_not_fatal(pool, payload):
    first, _ = ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r")))
        await asyncio.sleep(0.01)
        first.say(messages.Finished("r", A, 0, payload=payload))
        first.say(messages.Finished("r", A, 0, payload=payload))  # twice
        first.say(messages.Finished("r", "t.py::never", 0, payload=payload))
        first.say(messages.Finished("unknown", A, 0, payload=payload))
        first.done("r")
        return await task

    (row,) = asyncio.run(scenario())
    assert (row.outcome, row.score) == (Outcome.CRASHED, None)


def test_worker_that_talks_nonsense_is_killed(pool):
    first, _ = ready(pool)

    async def scenario():
        task = asyncio.create_task(collect(pool, request("r")))
        await asyncio.sleep(0.01)
        first.receiver(b"\0\0\0\2{}")
        return await task

    (row,) = asyncio.run(scenario())
    assert (row.outcome, first.killed) == (Outcome.LOST, 1)


@pytest.mark.parametrize(
    ("outcome", "score"), [(Outcome.ERROR, None), (Outcome.FAILED, 0.0)]
)
def test_case_that_cannot_be_scored_stops_the_baseline_only(pool, outcome, score):
    first, _ = ready(pool)
    raw = RawRollout(outcome, score, problem="set score_from")

    async def scenario(name, purpose):
        task = asyncio.create_task(collect(pool, request(name, purpose=purpose)))
        await asyncio.sleep(0.01)
        first.finish(name, raw=raw)
        first.done(name)
        return await task

    (row,) = asyncio.run(scenario("r", Purpose.CHILD))
    assert (row.outcome, row.score) == (outcome, score)
    with pytest.raises(SuiteProblem, match=r"t\.py::a: set score_from"):
        asyncio.run(scenario("s", Purpose.BASELINE))


def test_stream_that_is_left_is_cancelled(pool):
    first, _ = ready(pool)

    async def scenario():
        stream = pool.submit(request("r", A, B))
        task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        first.finish("r", A)
        first.done("r", more=True)
        await task
        await stream.aclose()

    asyncio.run(scenario())
    assert messages.Cancel("r") in first.sent


def test_worker_that_comes_after_the_end_is_told_to_leave(pool):
    ready(pool)
    pool.close()
    late = Wire(pool, "gw7")

    async def scenario():
        pool._bind()
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert late.sent == [messages.Stop(now=True)]


def test_late_settings_reach_later_workers_too(pool):
    first, _ = ready(pool)
    pool.configure(run="20260101")
    third = Wire(pool, "gw2")

    async def scenario():
        pool._bind()
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    wanted = messages.Configure(settings={"run": "20260101"})
    assert first.sent == third.sent == [wanted]
