"""Whether a test process could end its worker by a signal."""

from __future__ import annotations

import os

from pytest_evo.plugin.isolation.shield import keep_signals


def signals_are_kept() -> bool:
    """Whether no signal of a test process reaches this one, tried in a child.

    False where nobody knows: with rights that only a mount gives, it may still be so.
    """
    if not hasattr(os, "fork"):
        return False
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            keep_signals()
            os.kill(parent, 0)
        except PermissionError:
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
