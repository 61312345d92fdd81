"""Values that all parts share: frozen, slotted, free of behaviour that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from enum import StrEnum
from typing import Any
from typing import TYPE_CHECKING
from typing import TypeAlias

from pytest_evo.spending import NO_USAGE as NO_USAGE
from pytest_evo.spending import Usage as Usage

CaseId: TypeAlias = str
"""A pytest node id."""
CandidateId: TypeAlias = str
"""``c0000`` is the start, ``c0012`` child 12, ``c0012-1`` the first of its chain."""
TreeHash: TypeAlias = str
if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # pydantic cannot follow an alias that names itself
ScoreVector: TypeAlias = Mapping[CaseId, float]

START: CandidateId = "c0000"
EPSILON = 1e-8
"""Scores closer than this are equal (the published tolerance)."""


def candidate_id(iteration: int, step: int) -> CandidateId:
    """The id of what was proposed at (iteration, step)."""
    return f"c{iteration:04d}-{step}" if step else f"c{iteration:04d}"


class Split(StrEnum):
    """What a case may be used for."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class Outcome(StrEnum):
    """How one rollout ended. Only passed and failed carry a score by themselves."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    MISSING = "missing"
    LOST = "lost"

    @property
    def is_infrastructure(self) -> bool:
        """Whether the rollout says nothing about the candidate's quality."""
        return self in _INFRASTRUCTURE

    @property
    def is_cut_off(self) -> bool:
        """Whether the test was broken off: its last model call may have been out."""
        return self in _CUT_OFF


_CUT_OFF = frozenset({Outcome.TIMEOUT, Outcome.CRASHED, Outcome.LOST})
_INFRASTRUCTURE = frozenset(
    {Outcome.ERROR, Outcome.TIMEOUT, Outcome.CRASHED, Outcome.LOST}
)


class Purpose(StrEnum):
    """What a rollout was spent on; the ledger adds up by it."""

    BASELINE = "baseline"
    PROBE = "probe"
    NOISE = "noise"
    PARENT = "parent"
    CHILD = "child"
    CHAIN = "chain"
    REPEAT = "repeat"
    CONFIRMATION = "confirmation"
    VALIDATION = "validation"
    FINAL = "final"


class Kind(StrEnum):
    """How reliably a file of the artifact takes effect, weakest first."""

    PROSE = "prose"
    CONFIG = "config"
    SCRIPT = "script"
    EXTENSION = "extension"


# -- the artifact ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Knob:
    """One value inside a TOML, YAML or JSON file that ``search`` may turn."""

    file: str
    key: str
    type: str  # float | int | bool | choice
    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = None
    choices: tuple[str | int | float | bool, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRule:
    """What the settings say of the files that match one glob."""

    path: str
    about: str = ""
    kind: Kind = Kind.PROSE
    edit: bool = True
    max_bytes: int | None = None
    knobs: tuple[Knob, ...] = ()


@dataclass(frozen=True, slots=True)
class ArtifactSchema:
    """The declared directory: where it is, what may change, what each file is for."""

    directory: str  # relative to the rootdir, POSIX
    files: tuple[FileRule, ...] = ()
    include: tuple[str, ...] = ()
    max_bytes: int = 5_000_000
    max_files: int = 2_000

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """All knobs of all files, in declared order."""
        return tuple(knob for rule in self.files for knob in rule.knobs)


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name in a tree: a file, an (empty or not) directory or an inner link."""

    path: str  # POSIX, relative, NFC as found on disk
    kind: str  # file | dir | link
    mode: int = 0o644  # permission bits; only the execute bit is part of the hash
    blob: str = ""  # sha256 of the content (file)
    size: int = 0
    target: str = ""  # link


@dataclass(frozen=True, slots=True)
class Tree:
    """An immutable version of the artifact, named by its content."""

    hash: TreeHash
    entries: tuple[TreeEntry, ...]


# -- cases -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseMark:
    """What ``@pytest.mark.evo(...)`` and the fixtures say of a collected item."""

    id: CaseId
    file: str
    line: int
    fingerprint: str
    split: Split | None = None
    group: str | None = None
    weight: float = 1.0
    repeats: int | None = None
    timeout: float | None = None
    must_pass: bool = False
    deterministic: bool | None = None
    exclusive: str | None = None  # xdist_group
    body: str = ""  # what it does, whatever it is called; "" where that is not known
    texts: tuple[tuple[str, str], ...] = ()  # hashes of what it says, by path


@dataclass(frozen=True, slots=True)
class Case:
    """One eval, frozen at the baseline."""

    id: CaseId
    split: Split
    fingerprint: str = ""
    file: str = ""
    group: str | None = None
    weight: float = 1.0
    repeats: int | None = None
    timeout: float | None = None
    must_pass: bool = False
    deterministic: bool | None = None
    exclusive: str | None = None
    outcome: Outcome = Outcome.PASSED  # at the baseline


# -- rollouts --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """One value given with ``evo_score(name, value)``."""

    name: str
    value: float
    audit: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """What a rollout really opened or imported.

    ``files`` are artifact files, relative to it. ``exact`` is False where something
    could have been read unseen (a process, a native library); such a rollout counts
    as reaching everything. ``stale`` are files read from the project's own artifact
    directory while another candidate was meant.
    """

    files: tuple[str, ...] = ()
    exact: bool = True
    network: bool = False
    processes: bool = False
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """One pytest report of a rollout: set-up, call or teardown, as plain text."""

    when: str
    outcome: str
    seconds: float
    message: str = ""
    longrepr: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    xfail: str | None = None
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One ``evo_trace("step", **data)``."""

    name: str
    data: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything of a rollout that is too big for the journal; a file of its own."""

    phases: tuple[Phase, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    warnings: tuple[str, ...] = ()
    project_files: tuple[str, ...] = ()  # non-artifact project files that were read
    fixtures: Mapping[str, float] = field(default_factory=dict)  # set-up seconds
    serialized: tuple[Mapping[str, Json], ...] = ()  # pytest's own form


COPY_CHANGED = "wrote into the artifact: "
"""How ``Rollout.violation`` begins where a throw-away copy was changed, and no more."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One execution of one case on one candidate."""

    candidate: CandidateId
    tree: TreeHash
    case: CaseId
    repeat: int
    outcome: Outcome
    score: float | None
    seconds: float = 0.0
    attempt: int = 0
    metrics: tuple[Metric, ...] = ()
    usage: Usage = NO_USAGE
    reach: Reach = Reach()
    violation: str | None = None
    worker: str = ""
    detail: Detail | None = None  # until it is recorded
    trace: str | None = None  # where the detail is, relative to the run directory
    started: bool = True  # False: the request died before its set-up


# -- candidates ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """What rollouts say of one changed file, against the files it was made from.

    Only cases of the batch that reach the file count; where nobody knows whether one
    does, it is among ``unsure`` too. ``before`` and ``after`` are means over those that
    have a score on both sides, and None where none has.
    """

    base: CandidateId
    cases: tuple[CaseId, ...] = ()
    unsure: tuple[CaseId, ...] = ()
    before: float | None = None
    after: float | None = None
    better: tuple[CaseId, ...] = ()
    worse: tuple[CaseId, ...] = ()

    @property
    def moved(self) -> tuple[CaseId, ...]:
        """The cases whose score changed, up or down."""
        return self.better + self.worse


@dataclass(frozen=True, slots=True)
class ChangelogEntry:
    """Why one file changed. What changed is computed, not told.

    ``evidence`` names cases and what was seen in them; ``effect`` is measured when the
    candidate has run on its batch.
    """

    file: str
    reason: str
    change: str = ""  # added | modified | deleted, computed
    evidence: tuple[str, ...] = ()
    expected: str = ""
    effect: Effect | None = None


class Status(StrEnum):
    """What became of a candidate when its iteration closed."""

    START = "start"
    ACCEPTED = "accepted"  # and entered the population
    UNPROVEN = "unproven"  # accepted on the batch, and val did not let it in
    REJECTED = "rejected"
    INCOMPLETE = "incomplete"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One immutable version of the artifact with its parent and changelog."""

    id: CandidateId
    tree: TreeHash
    parent: CandidateId | None = None  # the accepted candidate it is tested against
    base: CandidateId | None = None  # whose files were edited (parent or chain node)
    iteration: int = 0
    step: int = 0  # 0: direct proposal, 1..: chain
    changelog: tuple[ChangelogEntry, ...] = ()
    data: Mapping[str, Json] = field(default_factory=dict)  # the proposer's own


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A structured reading of why rollouts failed.

    ``doubts`` are what checks found wrong with a ``weak`` one. ``methods`` are the five
    ways of reading that were gone, by name, with what each of them showed.
    """

    cases: tuple[CaseId, ...]
    observation: str
    cause: str = ""
    file: str = ""
    change: str = ""
    quotes: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)  # earlier diagnosis -> A-I
    confidence: float = 0.0
    weak: bool = False
    doubts: tuple[str, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""  # defect | quirk, where that was judged
    objection: str = ""  # what speaks against it, where somebody looked for that


@dataclass(frozen=True, slots=True)
class Node:
    """A candidate of a chain with what is known of it on the batch."""

    candidate: Candidate
    rollouts: tuple[Rollout, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    mean: float | None = None  # weighted batch mean; None if nothing was scored


@dataclass(frozen=True, slots=True)
class Member:
    """A candidate in the population with its val vector."""

    candidate: Candidate
    scores: ScoreVector
    mean: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One evaluated node of a closed iteration, as later proposals may see it."""

    candidate: CandidateId
    parent: CandidateId
    iteration: int
    step: int
    scores: ScoreVector  # on train cases only
    gain: float | None  # over the parent on the batch
    accepted: bool
    data: Mapping[str, Json] = field(default_factory=dict)
    changelog: tuple[ChangelogEntry, ...] = ()
    tree: TreeHash = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a proposer gives back beside the edited files."""

    changelog: tuple[ChangelogEntry, ...] = ()
    usage: Usage = NO_USAGE
    data: Mapping[str, Json] = field(default_factory=dict)


class Decision(StrEnum):
    """What acceptance says of a child."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision with the numbers behind it. ``effect`` is child minus parent."""

    decision: Decision
    effect: float
    threshold: float = 0.0
    p_value: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """Start against winner: paired difference with its 95 % interval."""

    split: Split
    in_sample: bool
    cases: int
    start: float
    winner: float
    difference: float
    low: float
    high: float
    worse: tuple[CaseId, ...] = ()
    better: tuple[CaseId, ...] = ()
    audit: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unmeasured: int = 0  # cases that a budget did not pay for
    budget: str = ""  # which: rollouts, tokens or usd
