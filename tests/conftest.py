"""Plugins and hypothesis profiles of all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck
from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile(
    "fuzz",  # make fuzz; tests that name a number of their own keep it
    max_examples=int(os.environ.get("PYTEST_EVO_FUZZ", "3000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
