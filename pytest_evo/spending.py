"""What model calls cost, with prices that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """What model calls cost. ``usd`` is None where a price is unknown, never 0.

    Where it is, ``unpriced`` counts the calls of unknown price, ``known_usd`` is what
    the others cost, and ``estimated_usd`` what those are taken for by a budget: None
    where nobody can tell.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    seconds: float = 0.0
    unpriced: int = 0
    known_usd: float = 0.0
    estimated_usd: float | None = 0.0

    def __post_init__(self) -> None:
        """Take an unknown price without further words for that of all calls."""
        if self.usd is None and not self.unpriced:
            object.__setattr__(self, "unpriced", max(1, self.calls))
            object.__setattr__(self, "estimated_usd", None)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def paid_usd(self) -> float:
        """What the calls of known price cost."""
        return self.known_usd if self.usd is None else self.usd

    @property
    def counted_usd(self) -> float:
        """What a budget of money counts: known prices, and estimates of the others."""
        return self.paid_usd + (self.estimated_usd or 0.0)

    def __add__(self, other: Usage) -> Usage:
        """Add two spends; an unknown price stays unknown."""
        return self._with(other, 1)

    def __sub__(self, other: Usage) -> Usage:
        """Take a spend out of one that it is a part of."""
        return self._with(other, -1)

    def _with(self, other: Usage, sign: int) -> Usage:
        guesses = self.estimated_usd, other.estimated_usd
        unpriced = self.unpriced + sign * other.unpriced
        paid = self.paid_usd + sign * other.paid_usd
        blind = (sign > 0 and None in guesses) or self.estimated_usd is None
        guess = (guesses[0] or 0.0) + sign * (guesses[1] or 0.0)
        return Usage(
            self.calls + sign * other.calls,
            self.input_tokens + sign * other.input_tokens,
            self.cached_tokens + sign * other.cached_tokens,
            self.output_tokens + sign * other.output_tokens,
            None if unpriced else paid,
            self.seconds + sign * other.seconds,
            unpriced,
            paid if unpriced else 0.0,
            (None if blind else guess) if unpriced else 0.0,
        )


NO_USAGE = Usage()


# -- calls without an answer ---------------------------------------------------------

_UNSENT = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
    }
)
_ANSWERED = "HTTPStatusError"  # a provider's own answer; litellm makes up others
MAYBE_BILLED = frozenset({408, 499, 504, 522, 524})
"""Statuses of a proxy that gave up waiting: the model may have gone on."""
_DEEPEST = 20  # causes of causes


def may_cost(error: BaseException) -> bool:
    """Whether a failed call may be on the bill: it went out, and its answer was lost.

    A provider that answers with an error takes nothing for it.
    """
    causes = list(_causes(error))
    if any(type(one).__name__ in _UNSENT for one in causes):
        return False
    answered = [one for one in causes if type(one).__name__ == _ANSWERED]
    code = getattr(error, "status_code", None)
    if answered:
        response = getattr(answered[-1], "response", None)
        return getattr(response, "status_code", code) in MAYBE_BILLED
    if len(causes) == 1 and code is not None and 400 <= code < 500:
        return code in MAYBE_BILLED  # refused before it was sent
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_DEEPEST):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
