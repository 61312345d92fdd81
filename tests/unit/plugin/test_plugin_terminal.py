from __future__ import annotations

import io
import threading
from dataclasses import replace
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.plugin.terminal import make_display
from pytest_evo.plugin.terminal import panel
from pytest_evo.reports.console import Line
from pytest_evo.reports.console import ProgressState
from pytest_evo.reports.console import Spending

STATE = ProgressState("iterations", 1, 0.75, 0.5, 120, 500, 0, 4, 60.0, 0.5, accepted=1)


class Log:
    """A terminal reporter's ``write_line`` with a clock beside it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.markup: list[dict[str, bool]] = []
        self.time = 0.0

    def write_line(self, line, **markup) -> None:
        self.lines.append(line)
        self.markup.append(markup)

    def display(self, **options) -> LiveDisplay:
        def now() -> datetime:
            return datetime(2026, 1, 1)

        return LiveDisplay(self, clock=lambda: self.time, now=now, **options)


def screen() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def test_plain_log_gets_a_line_per_phase_at_once():
    log = Log()
    display = log.display()
    for phase in ("baseline", "baseline", "iterations", "final"):
        display.update(replace(STATE, phase=phase))
    assert [line.split(" |")[0] for line in log.lines] == [
        "baseline",
        "iterations",
        "final",
    ]


def test_plain_log_tells_of_a_validation_only_where_it_finds_a_new_best():
    log = Log()
    display = log.display()
    for number in range(20):
        best = 0.5 if number < 7 else 0.75
        for phase in ("search", "validation"):
            display.update(replace(STATE, phase=phase, best_val=best))
    assert [line.split(" |")[0] for line in log.lines] == ["search", "search"]
    assert "best val 0.750" in log.lines[1]


def test_plain_log_is_not_flooded_by_quick_iterations():
    log = Log()
    display = log.display()
    for number in range(1_000):
        log.time = number * 0.1
        display.update(replace(STATE, iteration=number))
    assert 8 <= len(log.lines) <= 11


def test_plain_log_shows_life_where_nothing_changes():
    log = Log()
    display = log.display()
    for second in range(150):
        log.time = float(second)
        display.update(replace(STATE, elapsed=float(second)))
    assert len(log.lines) == 3


def test_close_writes_what_was_not_shown_and_only_once():
    log = Log()
    display = log.display()
    display.update(STATE)
    display.update(replace(STATE, rollouts_used=121))
    display.close()
    display.close()
    display.update(replace(STATE, phase="late"))
    assert len(log.lines) == 2
    assert "121/500" in log.lines[1]


def test_quiet_display_writes_only_notes():
    log = Log()
    display = log.display(quiet=True)
    display.update(STATE)
    display.project(Spending(10, {"rollouts": (20, 40)}))
    display.note([Line("kept", "dim")])
    display.close()
    assert log.lines == ["kept"]
    assert log.markup == [{"light": True}]


def test_plain_log_gets_the_projection_once():
    log = Log()
    display = log.display()
    display.project(Spending(10, {"rollouts": (0, 40)}))
    display.project(Spending(10, {"rollouts": (20, 40)}))
    display.project(Spending(20, {"rollouts": (30, 40)}))
    assert log.lines == [
        "at this pace the run ends in 10 s (00:00), limited by rollouts"
    ]


def test_terminal_gets_a_panel_and_no_lines():
    log, console = Log(), screen()
    display = log.display(console=console)
    display.project(Spending(10, {"rollouts": (20, 40)}))
    display.update(STATE)
    shown = console.file.getvalue()
    assert "best val" in shown
    assert "0.750 (+0.250 over the start), 1 accepted" in shown
    assert "120/500 rollouts, 380 left" in shown
    assert "limited by rollouts" in shown
    display.close()
    assert log.lines == []


def test_panel_is_not_redrawn_for_every_rollout():
    log, console = Log(), screen()
    display = log.display(console=console)
    for number in range(1_000):
        log.time = number * 0.001
        display.update(replace(STATE, rollouts_used=number))
    display.close()
    assert 5 <= console.file.getvalue().count("best val") <= 22


def test_note_stays_above_the_panel():
    log, console = Log(), screen()
    display = log.display(console=console)
    display.update(STATE)
    display.note([Line("something happened", "yellow")])
    log.time = 1.0
    display.update(STATE)
    display.close()
    assert log.lines == ["something happened"]
    assert log.markup == [{"yellow": True}]


def test_lost_terminal_does_not_end_the_run():
    tried = []

    class Gone(Log):
        def write_line(self, line, **markup) -> None:
            tried.append(line)
            raise OSError(5, "Input/output error")

    display = Gone().display()
    display.update(STATE)
    display.update(replace(STATE, phase="final"))
    display.close()
    assert tried


def test_updates_from_many_threads_are_whole():
    log, console = Log(), screen()
    display = log.display(console=console)
    threads = [
        threading.Thread(target=lambda: [display.update(STATE) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    display.close()
    assert "120/500" in console.file.getvalue()


@given(st.text(st.characters(codec=None, categories=None)))
def test_panel_shows_hostile_text_as_text(text):
    console = screen()
    console.print(panel(replace(STATE, phase=f"[red]{text}[/]"), text[:0]))
    shown = console.file.getvalue()
    assert "[red]" in shown
    assert "\x1b" not in shown


def test_display_of_a_log_has_no_panel():
    class Reporter(Log):
        isatty = False

    reporter = Reporter()
    make_display(reporter).update(STATE)
    assert len(reporter.lines) == 1


def test_display_of_a_terminal_has_a_panel(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Reporter(Log):
        isatty = True

        class _tw:
            _file = Terminal()

    reporter = Reporter()
    display = make_display(reporter)
    display.update(STATE)
    display.close()
    assert reporter.lines == []
    assert "best val" in Reporter._tw._file.getvalue()
