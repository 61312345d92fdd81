"""What a person sees while a run is going on: a panel, or plain lines in CI.

No thread of its own: the display is redrawn when the engine reports something, so a
fork never meets a half-drawn screen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from typing import Protocol
from typing import TYPE_CHECKING

from pytest_evo.reports.console import duration
from pytest_evo.reports.console import Line
from pytest_evo.reports.console import progress_line
from pytest_evo.reports.console import ProgressState
from pytest_evo.reports.console import projection_line
from pytest_evo.reports.console import rollouts_text
from pytest_evo.reports.console import Spending
from pytest_evo.reports.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.console import RenderableType
    from rich.live import Live

REDRAW = 0.1
"""Seconds between two drawings of the panel, at least."""
CHANGED = 10.0
"""Seconds between two plain lines about a new iteration, at least."""
HEARTBEAT = 60.0
"""Seconds after which a plain line comes although nothing changed."""


class LineWriter(Protocol):
    """The part of pytest's terminal reporter that is used here."""

    def write_line(self, line: str | bytes, **markup: bool) -> None:
        """Write one line; markup is bold=True, red=True and the like."""


class LiveDisplay:
    """Shows where a run is. Every method may be called from any thread.

    A terminal that goes away in the middle of a run ends the display, not the run.
    """

    def __init__(
        self,
        writer: LineWriter,
        *,
        console: Console | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._writer = writer
        self._console = console
        self._quiet = quiet
        self._clock = clock
        self._now = now
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._state: ProgressState | None = None
        self._written: ProgressState | None = None
        self._at = float("-inf")
        self._projection: str | None = None
        self._closed = False

    def update(self, state: ProgressState) -> None:
        """Show a new state, now or with a later one."""
        with self._lock:
            self._state = state
            if self._closed or self._quiet:
                return
            if self._console is not None:
                self._guarded(self._draw)
            elif self._is_due(state):
                self._guarded(self._write_state)

    def project(self, spending: Spending) -> None:
        """Show when the run will end at its pace; a plain log gets the first one."""
        with self._lock:
            first = self._projection is None
            self._projection = projection_line(spending, self._now())
            if self._projection is None or self._closed or self._quiet:
                return
            if self._console is None and first:
                self._guarded(self._writer.write_line, self._projection)

    def note(self, lines: Iterable[Line]) -> None:
        """Write lines that stay, above the panel where there is one."""
        with self._lock:
            live, self._live = self._live, None
            if live is not None:
                self._guarded(live.stop)
            for line in lines:
                markup = {_MARKUP.get(line.style, line.style): True}
                self._guarded(
                    self._writer.write_line, line.text, **(markup if line.style else {})
                )

    def close(self) -> None:
        """Remove the panel; a plain log gets the last state if it has not."""
        with self._lock:
            if self._closed:
                return
            if self._live is not None:
                self._guarded(self._live.stop)
                self._live = None
            unseen = self._state is not None and self._state != self._written
            if self._console is None and unseen and not self._quiet:
                self._guarded(self._write_state)
            self._closed = True

    def _guarded(self, show: Callable[..., object], *args: Any, **markup: Any) -> None:
        try:
            show(*args, **markup)
        except (OSError, ValueError):
            self._closed = True  # the terminal is gone, or its file is closed

    def _is_due(self, state: ProgressState) -> bool:
        seen = self._written
        if seen is None or _stage(seen.phase) != _stage(state.phase):
            return True
        if (state.best_val or 0.0) > (seen.best_val or 0.0):
            return True
        changed = (seen.iteration, seen.accepted) != (state.iteration, state.accepted)
        return self._clock() - self._at >= (CHANGED if changed else HEARTBEAT)

    def _write_state(self) -> None:
        if self._state is not None:
            self._written, self._at = self._state, self._clock()
            self._writer.write_line(progress_line(self._state))

    def _draw(self) -> None:
        if self._clock() - self._at < REDRAW or self._state is None:
            return
        self._at = self._clock()
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(panel(self._state, self._projection), refresh=True)


def _stage(phase: str) -> str:
    """Validations come and go within the search; they are no news by themselves."""
    first = phase.split()[0] if phase.split() else ""
    return "search" if first == "validation" else first


_MARKUP = {"dim": "light"}  # what pytest's terminal writer calls it


def panel(state: ProgressState, projection: str | None = None) -> RenderableType:
    """The state as a panel; its texts are shown as they are, markup or not."""
    from rich.box import ROUNDED
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    chain = f", chain step {state.depth}" if state.depth else ""
    where = f"iteration {state.iteration}{chain}" if state.iteration else ""
    flight = f"{state.in_flight} in flight" if state.in_flight else ""
    doing = ", ".join(filter(None, (visible(state.phase), where, flight)))
    grid.add_row("now", Text(doing))
    if state.best_val is not None:
        best = Text(f"{state.best_val:.3f}", style="bold")
        if state.start_val is not None:
            gain = state.best_val - state.start_val
            best.append(
                f" ({gain:+.3f} over the start)", "green" if gain > 0 else "default"
            )
        best.append(f", {state.accepted} accepted", style="default")
        grid.add_row("best val", best)
    grid.add_row("spent", Text(rollouts_text(state)))
    if state.rollouts_limit:
        used = min(state.rollouts_used, state.rollouts_limit)
        grid.add_row("", ProgressBar(state.rollouts_limit, used, width=40))
    pace = state.seconds_per_rollout
    each = f", {pace:.2f} s a rollout" if pace is not None else ""
    grid.add_row("time", Text(duration(state.elapsed) + each))
    if projection:
        grid.add_row("end", Text(projection))
    return Panel(grid, title="pytest-evo", title_align="left", box=ROUNDED)


def make_display(reporter: Any, *, quiet: bool = False) -> LiveDisplay:
    """A display for pytest's terminal reporter: a panel where it is a terminal."""
    file = getattr(reporter, "_tw", None)
    stream = getattr(file, "_file", None)
    if stream is None or not getattr(reporter, "isatty", False):
        return LiveDisplay(reporter, quiet=quiet)
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    is_terminal = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(reporter, console=console if is_terminal else None, quiet=quiet)
