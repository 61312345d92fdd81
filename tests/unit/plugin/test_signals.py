from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_evo.plugin import signals


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in signals.STOPPERS}
    yield before
    signals.restore()
    assert {number: signal.getsignal(number) for number in before} == before


def test_first_signal_is_soft_and_the_second_is_not():
    calls = []
    stops = signals.StopSignals(lambda: calls.append("soft"), lambda: calls.append(2))
    stops.install()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (calls, stops.count) == (["soft"], 1)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert calls == ["soft", 2]


def test_signals_while_the_session_ends_break_nothing_off():
    calls = []
    stops = signals.StopSignals(lambda: calls.append("soft"), lambda: calls.append(2))
    stops.install()
    os.kill(os.getpid(), signal.SIGHUP)
    stops.finishing = True
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGHUP)
    assert calls == ["soft", 2, 2]
    with pytest.raises(KeyboardInterrupt):  # it hangs
        os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_run_in_the_background_goes_on_ignoring_what_it_was_told_to(number, handlers):
    calls = []
    stops = signals.StopSignals(lambda: calls.append("soft"), lambda: calls.append(2))
    signal.signal(number, signal.SIG_IGN)  # as nohup does
    try:
        stops.install()
        os.kill(os.getpid(), number)
        assert not calls
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == ["soft"]
    finally:
        signal.signal(number, handlers[number])


def test_ignored_signals_change_nothing():
    signals.ignore_stops()
    sent = []
    for number in signals.STOPPERS:
        os.kill(os.getpid(), number)
        sent.append(number)
    assert sent == list(signals.STOPPERS)  # this process is still there
    # what is ignored stays ignored in programs that are started
    assert signal.SIG_IGN not in map(signal.getsignal, signals.STOPPERS)


def test_handlers_come_back_after_several_changes(handlers):
    signals.ignore_stops()
    signals.StopSignals(lambda: None, lambda: None).install()
    signals.restore()
    assert signal.getsignal(signal.SIGINT) is handlers[signal.SIGINT]


LEAVING = """
import os, signal, sys
from pytest_evo.plugin import signals
stops = signals.StopSignals(lambda: None, lambda: None)
stops.install()
os.kill(os.getpid(), signal.SIGTERM)
stops.retire()
print("all is said", flush=True)
sys.exit(2)
"""


@pytest.mark.parametrize("number", signals.STOPPERS)
def test_signals_after_the_last_word_do_not_change_the_exit_status(number):
    with subprocess.Popen(
        [sys.executable, "-c", LEAVING], stdout=subprocess.PIPE
    ) as leaving:
        assert leaving.stdout is not None
        leaving.stdout.readline()
        while leaving.poll() is None:
            os.kill(leaving.pid, number)
        assert leaving.returncode == 2


def test_program_that_goes_on_after_a_stop_has_its_handlers_back(monkeypatch):
    heard = []
    own = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        stops = signals.StopSignals(lambda: None, lambda: None)
        stops.install()
        os.kill(os.getpid(), signal.SIGTERM)
        stops.retire()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == []
        later = time.monotonic() + 6
        monkeypatch.setattr(time, "monotonic", lambda: later)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, own)


def test_run_that_was_not_stopped_gives_the_handlers_back_at_once(handlers):
    stops = signals.StopSignals(lambda: None, lambda: None)
    stops.install()
    stops.retire()
    assert signal.getsignal(signal.SIGINT) is handlers[signal.SIGINT]
