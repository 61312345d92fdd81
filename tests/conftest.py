"""Plugins and hypothesis profiles of all tests."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck
from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile(
    "fuzz",  # make fuzz; tests that name a number of their own keep it
    max_examples=int(os.environ.get("PYTEST_EVO_FUZZ", "3000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_configure() -> None:
    """Let what tests start hear signals, also where these run in the background.

    What is ignored is inherited; what is heard and not acted upon is not.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
