"""A throw-away controller: registers a session and drives a pool from ``drive.py``.

``drive.py`` in the project defines ``async def drive(pool, artifact)``; what it
returns goes to ``result.json``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.trees import snapshot
from pytest_evo.models import Purpose
from pytest_evo.protocols import Request

DRIVER_SOURCE = Path(__file__)


class Driver:
    def __init__(self, pool, config):
        self.pool = pool
        self.root = config.rootpath
        self.blobs = MemoryBlobs()
        self.trees = {}
        self.count = 0
        self.soft_stops = 0
        self.candidate = self.add(self.root / "artifact")
        pool.set_source(self.trees.__getitem__, self.blobs.get)

    def add(self, directory):
        tree = snapshot(directory, self.blobs)
        self.trees[tree.hash] = tree
        return tree.hash

    def request(self, *names, tree=None, repeat=0):
        self.count += 1
        runs = tuple(
            (name if "::" in name else self.case(name), repeat) for name in names
        )
        return Request(
            f"r{self.count}", "c0000", tree or self.candidate, runs, Purpose.CHILD
        )

    def case(self, name):
        ids = [mark.id for mark in self.pool.hellos[0].marks]
        return next(one for one in ids if one.partition("::")[2] == name)

    def cases(self):
        return [mark.id for mark in self.pool.hellos[0].marks]

    async def run(self, *names, **options):
        return [one async for one in self.pool.submit(self.request(*names, **options))]


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return
    from drive import drive

    settings = {"artifact": "artifact", **json.loads(os.environ.get("EVO", "{}"))}
    box = {}

    def run_engine(pool):
        driver = box["driver"] = Driver(pool, config)
        if "EVO_GRACE" in os.environ:
            pool._orders.grace = float(os.environ["EVO_GRACE"])
        began = time.perf_counter()
        result = asyncio.run(drive(driver))
        rows = [
            dataclasses.asdict(one) if dataclasses.is_dataclass(one) else one
            for one in result or ()
        ]
        (config.rootpath / "result.json").write_text(
            json.dumps({"rows": rows, "seconds": time.perf_counter() - began})
        )
        return int(os.environ.get("EVO_STATUS", "0"))

    def on_soft_stop():
        box["driver"].soft_stops += 1

    if config.getoption("tx", None) or config.getoption("numprocesses", None):
        from pytest_evo.plugin.pools.xdist import XdistSession as Session
    else:
        from pytest_evo.plugin.pools.inprocess import InProcessSession as Session
    session = Session(config, settings, run_engine, on_soft_stop)
    config.pluginmanager.register(session, "evo-test-session")


@pytest.fixture
def unused():
    return None
