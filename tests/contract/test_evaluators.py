from __future__ import annotations

import contextlib
import json
import os
import threading
import time

import pytest

from pytest_evo.models import CaseMark
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.plugin import messages
from pytest_evo.plugin import processes
from pytest_evo.plugin.forking import Child
from pytest_evo.plugin.forking import fork
from pytest_evo.plugin.forking import ForkExit
from pytest_evo.plugin.forking import Place
from pytest_evo.plugin.frames import frame_pair
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.links import local_pair
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.plugin.serving import Server
from pytest_evo.testing.doubles import FakeEvaluator
from pytest_evo.testing.evaluator_contract import Bench
from pytest_evo.testing.evaluator_contract import EvaluatorContract

TREE = Tree("ab" * 32, ())
ONE, TWO, BAD, ENDLESS = "t.py::one", "t.py::two", "t.py::bad", "t.py::endless"


class TestFakeEvaluator(EvaluatorContract):
    @pytest.fixture
    def bench(self):
        def judge(tree, case, repeat):
            return {ONE: 1.0, TWO: 1.0, BAD: 0.0}.get(case, Outcome.MISSING)

        return Bench(FakeEvaluator(judge), TREE.hash, (ONE, TWO), BAD)


class PlainLauncher:
    """Forks children that know the answers; nothing of pytest is in the way."""

    def __init__(self, directory):
        self.directory = directory
        self.count = 0
        self.notices = []

    def trouble(self):
        return None

    def missing(self, run):
        return ()

    def knows(self, run, case):
        return case.startswith("t.py")

    def launch(self, run, todo, in_child):
        self.count += 1
        reader, descriptor = frame_pair()
        parent = os.getpid()

        def child():
            processes.lead_session(parent)
            in_child()
            writer = FrameWriter(descriptor)
            for case, repeat, _ in todo:
                writer.send(messages.Started("", case, repeat))
                if case == ENDLESS:
                    time.sleep(600)
                good = case != BAD
                raw = RawRollout(
                    Outcome.PASSED if good else Outcome.FAILED, float(good)
                )
                payload = json.dumps(raw.to_plain()).encode()
                writer.send(messages.Finished("", case, repeat, payload=payload))
            writer.send(messages.Farewell())

        pid = fork(child)
        os.close(descriptor)
        scratch = self.directory / str(self.count)
        place = Place(scratch, scratch, scratch, scratch, scratch / "log")
        return Child(pid, reader, place, ForkExit(pid), lambda: None)

    def sweep(self, live, dead):
        pass

    def report(self, outcome, seconds, message, log, usage=NO_USAGE):
        raw = RawRollout(outcome, None, seconds, usage=usage)
        return json.dumps(raw.to_plain()).encode()


@contextlib.contextmanager
def pool_of(workers, concurrency, directory):
    """A pool whose workers are threads with the real serving loop."""
    pool = Pool(workers=workers, concurrency=concurrency)
    threads = []
    for at in range(workers):
        ours, theirs = local_pair()
        launcher = PlainLauncher(directory / str(at))
        server = Server(theirs, launcher, concurrency=concurrency)
        theirs.listen(server.deliver)
        pool.add_worker(f"gw{at}", ours, lambda: None)
        marks = tuple(CaseMark(case, "t.py", 1, "") for case in (ONE, TWO, BAD))
        theirs.send(messages.encode(messages.Hello(f"gw{at}", os.getpid(), "", marks)))
        threads.append(threading.Thread(target=server.serve, daemon=True))
        threads[-1].start()
    pool.set_source(lambda tree: TREE, lambda sha: b"")
    yield pool
    pool.close(now=True)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("concurrency", [1, 3])
class TestPool(EvaluatorContract):
    @pytest.fixture
    def bench(self, tmp_path, concurrency):
        with pool_of(2, concurrency, tmp_path) as pool:
            yield Bench(
                pool, TREE.hash, (ONE, TWO), BAD, ENDLESS, prepare=pool.wait_ready
            )


class Told:
    """The controller's end of a line: what came, and how it came together."""

    def __init__(self):
        self.batches = []
        self.came = threading.Condition()

    def send(self, *data):
        with self.came:
            self.batches.append([messages.decode(one) for one in data])
            self.came.notify_all()

    def descriptors(self):
        return ()

    def kinds(self):
        return [[one.kind for one in batch] for batch in self.batches if batch]

    def wait_for(self, kind):
        with self.came:
            assert self.came.wait_for(
                lambda: any(kind in batch for batch in self.kinds()), timeout=10
            )


@pytest.fixture
def told(tmp_path):
    told = Told()
    server = Server(told, PlainLauncher(tmp_path))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield told, lambda message: server.deliver(messages.encode(message))
    server.deliver(messages.encode(messages.Stop(now=True)))
    thread.join(10)
    assert not thread.is_alive()


def run_of(*cases):
    runs = tuple((case, 0) for case in cases)
    return messages.Run("r", "c0001", TREE.hash, (), runs, (60.0,) * len(runs))


def test_news_of_cases_comes_in_order(told):
    told, deliver = told
    deliver(run_of(ONE, TWO))
    told.wait_for("done")
    news = [kind for batch in told.kinds() for kind in batch]
    assert news == ["started", "rollout", "started", "rollout", "done"]


def test_begin_of_a_long_case_is_told_while_it_runs(told):
    told, deliver = told
    deliver(run_of(ENDLESS))
    told.wait_for("started")
    assert told.kinds() == [["started"]]
