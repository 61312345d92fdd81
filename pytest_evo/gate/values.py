"""Values of the pull-request gate: what it is asked, what it saw, what it decided.

All are frozen and hold plain values only, so that a decision can be stored beside the
observations it rests on and made again from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from enum import StrEnum

from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Metric
from pytest_evo.models import Outcome


class Arm(StrEnum):
    """Which artifact a rollout ran on."""

    BASE = "base"
    HEAD = "head"


class Stage(StrEnum):
    """What a rollout was asked for; only some stages may carry a test.

    ``first``: one of each arm for every case. ``sample``: repeats that show whether a
    flipped case repeats itself. ``confirmation``: fresh rollouts of suspected cases.
    ``more``: whole further rounds over every noisy case.
    """

    FIRST = "first"
    SAMPLE = "sample"
    CONFIRMATION = "confirmation"
    MORE = "more"


class GateVerdict(StrEnum):
    """What the gate says of a change."""

    REGRESSED = "regressed"
    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    INCOMPLETE = "incomplete"


class GateExit(IntEnum):
    """Exit statuses of the gate."""

    OK = 0
    REGRESSED = 1
    INCONCLUSIVE = 16
    INCOMPLETE = 17


# -- what is asked -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A case that is run and shown, and does not count until ``expires`` has passed."""

    reason: str
    expires: date  # the last day on which it does not count


@dataclass(frozen=True, slots=True)
class Stored:
    """What a baseline file knows of one case, in place of rollouts of the base arm.

    ``mean`` and ``variance`` (of one rollout, n - 1 in the denominator; 0 for n = 1)
    are of scores; ``passes`` counts rollouts that passed.
    """

    n: int
    passes: int
    mean: float
    variance: float = 0.0
    skipped: bool = False  # it was skipped at the baseline; the rest says nothing then
    deterministic: bool = False  # a complete baseline found that it repeats itself
    seconds: float | None = None  # means of one rollout; None where unknown
    tokens: float | None = None
    usd: float | None = None
    metrics: tuple[Metric, ...] = ()  # their means


@dataclass(frozen=True, slots=True)
class GateCase:
    """One eval as the gate sees it.

    ``deterministic`` is what was declared (or what a complete baseline established);
    None leaves it to observation: no network, no processes, and repeats that agree.
    """

    id: CaseId
    group: str = ""
    must_pass: bool = False
    weight: float = 1.0
    deterministic: bool | None = None
    quarantine: Quarantine | None = None
    stored: Stored | None = None
    added: bool = False  # the base has no such case: head only, shown, never worse
    reached: bool = True  # False: it opens no changed file; only a sample is run


@dataclass(frozen=True, slots=True)
class Limit:
    """How much more than the base may be used: tokens, seconds, usd or bytes."""

    metric: str
    max_ratio: float


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The rules of one decision; the defaults are what is documented.

    Attributes:
        alpha: chance, at most, that an artifact as good as its base is called
            regressed.
        margin: a loss of the mean that is still called passed, once nothing larger
            can be meant.
        minimal_effect: a loss of the mean that is too small to be called regressed.
        tolerance: the share of the cases, by weight, that may come out worse, and the
            loss of a mean that is accepted, exactly so much included. Must-pass cases,
            removed ones and limits are not excused.
        confidence: of the intervals that are shown and that ``margin`` is held against.
        max_error_rate: share of cases that infrastructure may take away.
        flip_drop: a fall of one score that counts as a flip though both passed.
        rollouts: budget; None is twice the cases and an allowance to confirm.
        tokens: budget; None is no limit. Nothing new starts once it is spent.
        usd: budget, likewise.
        confirm: fresh rollouts of either arm per suspected case, by round.
        more_rounds: further whole rounds over the noisy cases, at most.
        retries: further attempts of a rollout that infrastructure took away.
        named: what is plain (a broken head, an outage) stops the gate once as many
            cases can be named for it.
        spot_checks: how many unreached cases are run all the same.
    """

    alpha: float = 0.02
    margin: float = 0.03
    minimal_effect: float = 0.005
    tolerance: float = 0.0
    confidence: float = 0.90
    max_error_rate: float = 0.05
    strict: bool = False
    limits: tuple[Limit, ...] = ()
    accept_removed: bool = False
    flip_drop: float = 0.5
    rollouts: int | None = None
    tokens: int | None = None
    usd: float | None = None
    confirm: tuple[int, int] = (4, 12)
    more_rounds: int = 3
    retries: int = 1
    named: int = 10
    spot_checks: int = 5
    seed: int = 0
    today: date = date.max  # unset: every quarantine has expired

    def tolerates(self, loss: float) -> bool:
        """Whether a share of the cases that fell, or a loss, is accepted."""
        return loss <= self.tolerance + EPSILON

    def is_loss(self, difference: float) -> bool:
        """Whether a mean fell by enough to be called regressed, chance aside."""
        return difference <= -self.minimal_effect + EPSILON and not (
            self.tolerates(-difference)
        )

    def keeps_margin(self, low: float) -> bool:
        """Whether a mean that fell to ``low`` at worst is called passed."""
        return low > -self.margin or (self.tolerance > 0 and self.tolerates(-low))


@dataclass(frozen=True, slots=True)
class Removed:
    """A case that the base has and the head has not."""

    id: CaseId
    passed: bool  # at the base


@dataclass(frozen=True, slots=True)
class Renamed:
    """A case that is the same under another node id."""

    old: CaseId
    new: CaseId


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between the sides besides how the cases come out."""

    added: tuple[CaseId, ...] = ()
    removed: tuple[Removed, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    files: tuple[str, ...] = ()  # changed artifact files, relative to the artifact
    project_files: tuple[str, ...] = ()  # changed project files that cases reach
    base_bytes: int | None = None  # size of the artifact
    head_bytes: int | None = None
    uncollected: tuple[CaseId, ...] = ()  # with the head's artifact, not the base's
    collection_error: str = ""  # the first one, in a line


# -- what was seen -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """One rollout to run. ``repeat`` counts per case and arm; a retry keeps it."""

    arm: Arm
    case: CaseId
    repeat: int
    stage: Stage
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """One rollout that came back (or is lost)."""

    case: CaseId
    arm: Arm
    repeat: int
    stage: Stage
    outcome: Outcome
    score: float | None
    attempt: int = 0
    seconds: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0  # None where a price is unknown
    metrics: tuple[Metric, ...] = ()
    network: bool = False
    processes: bool = False
    surprise: bool = False  # an unreached case opened a changed file after all
    message: str = ""  # the failure in a line


# -- what was decided --------------------------------------------------------------


class ReasonKind(StrEnum):
    """Why a verdict is what it is."""

    FLIP = "flip"  # deterministic cases that flipped
    CONFIRMED = "confirmed"  # noisy cases whose flip held in fresh rollouts
    MUST_PASS = "must_pass"
    SUSPECTS = "suspects"  # the suspected cases together, in fresh rollouts
    MEAN = "mean"  # the mean of all cases
    PLAIN = "plain"  # the e-process stopped a broken candidate
    GROUP = "group"
    METRIC = "metric"
    LIMIT = "limit"
    REMOVED = "removed"
    SKIPPED = "skipped"
    COLLECTION = "collection"  # the head's artifact keeps tests from being collected
    ERRORS = "errors"
    BUDGET = "budget"
    MARGIN = "margin"  # a loss beyond the margin cannot be excluded, or can
    EXACT = "exact"  # nothing is noisy and nothing flipped
    NOTHING = "nothing"  # no case was to be compared


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence of the verdict, with the cases it speaks of, worst first."""

    kind: ReasonKind
    text: str
    cases: tuple[CaseId, ...] = ()


class CaseStatus(StrEnum):
    """What the gate says of one case; the order is the order of reports."""

    MUST_PASS = "must pass, fails"
    FLIPPED = "flipped"  # deterministic
    CONFIRMED = "confirmed worse"
    SKIPPED = "skipped now"
    UNCOLLECTED = "cannot be collected"
    TOLERATED = "worse, tolerated"  # flipped or confirmed, within the tolerance
    SUSPECT = "worse at first"  # and not confirmed
    LOWER = "lower"
    ERROR = "not measured"
    NOT_RUN = "not run"
    QUARANTINED = "quarantined"
    FAILING = "fails as before"
    ADDED = "added"
    SAME = "same"
    HIGHER = "higher"
    FIXED = "fixed"
    UNREACHED = "unchanged, not run"
    NOT_COMPARED = "skipped before"


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case of the report. Means are over all scored rollouts of that arm."""

    id: CaseId
    status: CaseStatus
    base: float | None
    head: float | None
    base_n: int
    head_n: int
    base_passes: int
    head_passes: int
    group: str = ""
    p: float | None = None  # one-sided, of fresh rollouts only
    p_adjusted: float | None = None
    deterministic: bool = False
    note: str = ""  # of a quarantine, an error, a first failure message

    @property
    def difference(self) -> float | None:
        """Head minus base; None where one of them is unknown."""
        if self.base is None or self.head is None:
            return None
        return self.head - self.base


class Scope(StrEnum):
    """What an effect is about."""

    OVERALL = "overall"
    GROUP = "group"
    METRIC = "metric"


@dataclass(frozen=True, slots=True)
class Effect:
    """A paired difference of means, head minus base, over ``cases`` cases.

    ``p`` is one-sided (worse), from unselected rollouts only; ``p_adjusted`` is after
    Holm among the groups and metrics. ``low`` and ``high`` at the policy's confidence.
    """

    scope: Scope
    name: str
    cases: int
    base: float
    head: float
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float
    worse: int = 0  # cases
    better: int = 0
    counts: bool = True  # False: shown only (an audit metric)


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """One limit held against the base; exceeded where ``low`` is above it too."""

    metric: str
    base: float
    head: float
    ratio: float
    low: float
    high: float
    max_ratio: float
    exceeded: bool


@dataclass(frozen=True, slots=True)
class Excluded:
    """A pair that infrastructure took away, after retries."""

    id: CaseId
    arm: Arm
    outcome: Outcome
    stage: Stage
    message: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """What the gate used, retries included."""

    rollouts: int = 0
    base: int = 0
    head: int = 0
    by_stage: tuple[tuple[Stage, int], ...] = ()
    seconds: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The verdict with everything it rests on."""

    verdict: GateVerdict
    reasons: tuple[Reason, ...]
    effects: tuple[Effect, ...] = ()  # overall first, then groups, then metrics
    rows: tuple[CaseRow, ...] = ()  # worst first
    limits: tuple[LimitCheck, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    error_rate: float = 0.0
    quarantined: tuple[CaseId, ...] = ()
    unreached: tuple[CaseId, ...] = ()
    saving_off: str = ""  # why unreached cases were run after all
    settle: str = ""  # what would settle an inconclusive verdict
    stopped: str = ""  # why it ended before its plan did
    warnings: tuple[str, ...] = ()
    spent: Spent = Spent()
    strict: bool = False
    change: Change = Change()

    @property
    def exit_code(self) -> GateExit:
        """The status of the process under the policy that decided."""
        if self.verdict is GateVerdict.REGRESSED:
            return GateExit.REGRESSED
        if self.verdict is GateVerdict.INCOMPLETE:
            return GateExit.INCOMPLETE
        if self.verdict is GateVerdict.INCONCLUSIVE and self.strict:
            return GateExit.INCONCLUSIVE
        return GateExit.OK

    @property
    def overall(self) -> Effect | None:
        """The effect over all counted cases; None where nothing was compared."""
        return next((e for e in self.effects if e.scope is Scope.OVERALL), None)
