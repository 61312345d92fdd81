"""What agents may spend and have spent, over all that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.proposers.agent.gateway_wire import Counted

_BYTES_PER_TOKEN = 4
_MILLION = 1_000_000


class Spent(Exception):
    """A budget is used up; the text says which."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens."""

    input_usd: float
    cached_usd: float
    output_usd: float

    def of(self, tokens: Counted) -> float:
        """What a call costs."""
        fresh = tokens.input_tokens - tokens.cached_tokens
        paid = (
            fresh * self.input_usd
            + tokens.cached_tokens * self.cached_usd
            + tokens.output_tokens * self.output_usd
        )
        return paid / _MILLION


class Meter:
    """Counts for all agents of a run, so that two of them cannot spend the same."""

    def __init__(self, prices: Prices | None = None) -> None:
        self.prices = prices
        self.lock = threading.Lock()
        self.total = NO_USAGE
        self._owed = NO_USAGE
        self._settled = NO_USAGE

    def open(self, tokens_left: int | None, usd_left: float | None) -> Allowance:
        """What one agent may spend; close it with :meth:`close`.

        What is left is as the budget sees it, without the agents that still run: their
        spending so far is taken off.
        """
        with self.lock:
            running = self.total.tokens - self._settled.tokens
            paid = self.total.counted_usd - self._settled.counted_usd
            return Allowance(
                self,
                None if tokens_left is None else tokens_left - running,
                None if usd_left is None else usd_left - paid,
            )

    def owe(self, tokens: Counted) -> None:
        """Charge a call that was made before the first agent to the first one."""
        price = self.prices.of(tokens) if self.prices is not None else None
        with self.lock:
            self._owed += Usage(
                1,
                tokens.input_tokens,
                tokens.cached_tokens,
                tokens.output_tokens,
                price if tokens != Counted() else 0.0,
            )

    def close(self, allowance: Allowance) -> Usage:
        """What an agent has spent, all of it."""
        with self.lock:
            self._settled += allowance.usage
            owed, self._owed = self._owed, NO_USAGE
            return allowance.usage + owed


class Allowance:
    """What one agent may spend, asked before each of its calls."""

    def __init__(
        self, meter: Meter, tokens_left: int | None, usd_left: float | None
    ) -> None:
        self._meter = meter
        self._tokens_left = tokens_left
        self._usd_left = usd_left
        self._begin = meter.total
        self._reserved = 0
        self._out: list[tuple[int, int]] = []  # tokens sent and at most received
        self.usage = NO_USAGE
        self.guessed = 0
        """Calls whose tokens were guessed, because the provider told none."""
        self.spent: str | None = None
        """Why no further call is allowed."""
        self.on_change: Callable[[], None] = lambda: None
        """Told whenever a call goes out or is over."""

    def reserve(self, size: int, most: int = 0) -> tuple[int, int | None]:
        """Ask for one call of ``size`` bytes and a reply of ``most`` tokens.

        Returns:
            What was set aside for it (give it back with :meth:`settle`), and how many
            tokens are left for its reply, None if nobody counts.

        Raises:
            Spent: a budget is used up.
        """
        need = size // _BYTES_PER_TOKEN
        with self._meter.lock:
            tokens, usd = self._left()
            if tokens is not None and tokens <= 0:
                self.spent = "the token budget of the run is used up"
            elif usd is not None and usd <= 0:
                self.spent = "the money of the run is used up"
            if self.spent is not None:
                raise Spent(self.spent)
            self._reserved += need
            self._out.append((need, most))
        self.on_change()
        return need, None if tokens is None else max(1, tokens - need)

    def settle(
        self,
        need: int,
        tokens: Counted | None,
        seconds: float,
        answered: int,
        most: int = 0,
        *,
        whole: bool = True,
    ) -> Usage:
        """Count a call that is over; return what it cost.

        Args:
            need: what was reserved for it.
            tokens: as the provider counted them; None: they are guessed, and the price
                is unknown.
            seconds: how long it took.
            answered: bytes of the reply; with 0 of them an uncounted call was free.
            most: tokens of the reply, at most, as far as the request says.
            whole: whether nothing of the reply is missing; a count in what came before
                its end is not of all of it.
        """
        final = tokens is not None and whole
        guessed = not final and answered > 0
        if tokens is not None and whole:
            usage = self._counted(tokens, seconds)
        elif answered:
            sent = need if tokens is None else tokens.input_tokens
            received = answered // _BYTES_PER_TOKEN
            usage = self._guessed(sent, seconds, received, 0 if whole else most)
        else:
            usage = Usage(1, seconds=seconds)
        with self._meter.lock:
            self._reserved -= need
            self._out.remove((need, most))
            self.guessed += guessed
            self.usage += usage
            self._meter.total += usage
        self.on_change()
        return usage

    def so_far(self) -> Usage:
        """What was spent by now; calls that are out are of unknown price."""
        with self._meter.lock:
            lost = [self._guessed(need, 0.0, 0, most) for need, most in self._out]
            return sum(lost, self.usage)

    def _counted(self, tokens: Counted, seconds: float) -> Usage:
        return Usage(
            1,
            tokens.input_tokens,
            tokens.cached_tokens,
            tokens.output_tokens,
            self._price(tokens),
            seconds,
        )

    def _guessed(self, sent: int, seconds: float, received: int, most: int) -> Usage:
        """A call of unknown price: its reply was lost, or nobody counted."""
        prices = self._meter.prices
        whole = Counted(sent, 0, max(received, most))
        return Usage(
            1,
            sent,
            output_tokens=received,
            usd=None,
            seconds=seconds,
            unpriced=1,
            estimated_usd=None if prices is None else prices.of(whole),
        )

    def _left(self) -> tuple[int | None, float | None]:
        total, begin = self._meter.total, self._begin
        tokens = usd = None
        if self._tokens_left is not None:
            tokens = self._tokens_left - (total.tokens - begin.tokens) - self._reserved
        if self._usd_left is not None:
            usd = self._usd_left - (total.counted_usd - begin.counted_usd)
        return tokens, usd

    def _price(self, tokens: Counted) -> float | None:
        if tokens.usd is not None:
            return tokens.usd
        if self._meter.prices is not None:
            return self._meter.prices.of(tokens)
        return None if tokens.input_tokens or tokens.output_tokens else 0.0
