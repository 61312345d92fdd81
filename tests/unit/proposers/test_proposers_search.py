from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.artifact.knobs import read_knob
from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.population import ParetoTopN
from pytest_evo.engine.sampling import Guards
from pytest_evo.engine.sampling import LeadCount
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import Knob
from pytest_evo.models import Member
from pytest_evo.models import Node
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.proposers.knobspace import Axis
from pytest_evo.proposers.knobspace import KnobSpace
from pytest_evo.proposers.memory import Memory
from pytest_evo.proposers.search import SearchProposer
from pytest_evo.protocols import BatchRequest
from pytest_evo.protocols import KnobValue
from pytest_evo.protocols import ProposalRequest

FILE = "p.toml"
KNOBS = (
    Knob(FILE, "a", "float", low=0.0, high=2.0),
    Knob(FILE, "rate", "float", low=1e-4, high=1.0, log=True),
    Knob(FILE, "n", "int", low=1, high=40),
    Knob(FILE, "flag", "bool"),
    Knob(FILE, "mode", "choice", choices=("x", "y", "z", "w")),
    Knob(FILE, "c", "float", low=-1.0, high=1.0, step=0.05),
)
VALUES = {"a": 0.5, "rate": 0.1, "n": 5, "flag": False, "mode": "x", "c": 0.0}


def toml(values):
    def shown(value):
        if isinstance(value, bool):
            return str(value).lower()
        return f'"{value}"' if isinstance(value, str) else repr(value)

    return "".join(f"{key} = {shown(value)} # {key}\n" for key, value in values.items())


def ask(
    proposer,
    folder: Path,
    values,
    *,
    knobs: Sequence[Knob] = KNOBS,
    history=(),
    nodes=(),
    parent=None,
    feedback=None,
    key=(1, 0),
    seed=0,
):
    """One proposal on real files: its new values and the proposal."""
    artifact = folder / "artifact"
    artifact.mkdir(parents=True, exist_ok=True)
    (artifact / FILE).write_text(toml(values))
    parent = parent or Candidate(START, "t")
    proposal = proposer.propose(
        ProposalRequest(
            *key,
            folder,
            ArtifactSchema("artifact"),
            "",
            parent,
            (),
            tuple(nodes) or (Node(parent, mean=0.5),),
            tuple(history),
            feedback,
            SeededDraws(seed).rng("proposal", *key),
            tuple(KnobValue(knob, values[knob.key]) for knob in knobs),
        )
    )
    text = (artifact / FILE).read_text()
    return {key: read_knob(text, ".toml", key) for key in values}, proposal


def attempt(number, proposal, gain, parent=START, accepted=False):
    return Attempt(
        f"c{number:04}", parent, number, 0, {}, gain, accepted, proposal.data
    )


# -- what a proposal is -------------------------------------------------------------


def test_search_changes_a_few_knobs_in_range_and_keeps_the_rest(tmp_path):
    axes = {knob.key: Axis(knob) for knob in KNOBS}
    for seed in range(30):
        found, proposal = ask(SearchProposer(), tmp_path, VALUES, seed=seed)
        changed = {key for key in VALUES if found[key] != VALUES[key]}
        assert 1 <= len(changed) <= 3
        for key in changed:
            axis = axes[key]
            assert found[key] == axis.value(axis.place(found[key]))
            assert type(found[key]) is type(VALUES[key])
        assert proposal.data["knobs"] == {f"{FILE}:{k}": v for k, v in found.items()}
        text = (tmp_path / "artifact" / FILE).read_text()
        assert [line.split("# ")[1] for line in text.splitlines()] == list(VALUES)


def test_search_says_what_it_changed_and_why(tmp_path):
    found, proposal = ask(SearchProposer(), tmp_path, VALUES)
    (entry,) = proposal.changelog
    assert entry.file == FILE
    for key, (old, new) in proposal.data["changed"].items():
        short = key.removeprefix(f"{FILE}:")
        assert (old, new) == (VALUES[short], found[short])
        assert f"{short} " in entry.reason
    assert " -> " in entry.reason


def test_search_may_start_out_of_range(tmp_path):
    wild = {**VALUES, "a": 7.5, "mode": "elsewhere", "n": 400}
    proposer = SearchProposer()
    history = []
    for number in range(1, 15):
        found, proposal = ask(
            proposer, tmp_path, wild, history=history, key=(number, 0)
        )
        assert found != wild
        assert found["a"] == 7.5 or 0 <= found["a"] <= 2
        assert found["mode"] in ("elsewhere", "x", "y", "z", "w")
        history.append(attempt(number, proposal, number % 3 / 10))


def test_search_never_proposes_the_same_twice_and_ends(tmp_path):
    knobs = (
        Knob(FILE, "flag", "bool"),
        Knob(FILE, "n", "int", low=1, high=5, step=2),
    )
    values = {"flag": False, "n": 1}
    seen = [values]
    history = []
    proposer = SearchProposer()
    for number in range(1, 6):
        found, proposal = ask(
            proposer, tmp_path, values, knobs=knobs, history=history, key=(number, 0)
        )
        assert found not in seen
        seen.append(found)
        history.append(attempt(number, proposal, 0.0))
    with pytest.raises(ProposerExhausted, match="all settings of 2 knobs"):
        ask(proposer, tmp_path, values, knobs=knobs, history=history, key=(6, 0))


def test_search_never_comes_back_to_the_start_and_ends(tmp_path):
    """Also where another candidate than the start has become the parent."""
    knobs = (Knob(FILE, "n", "int", low=1, high=6),)
    values = {"n": 3}
    seen = [3]
    history = []
    proposer = SearchProposer()
    found, proposal = ask(proposer, tmp_path, values, knobs=knobs)
    seen.append(found["n"])
    history.append(attempt(1, proposal, 0.1, accepted=True))
    parent = Candidate("c0001", "t1", START, data=proposal.data)
    for number in range(2, 6):
        new, proposal = ask(
            proposer,
            tmp_path,
            found,
            knobs=knobs,
            history=history,
            parent=parent,
            key=(number, 0),
        )
        assert new["n"] not in seen
        seen.append(new["n"])
        history.append(attempt(number, proposal, -0.1, parent="c0001"))
    with pytest.raises(ProposerExhausted, match="all settings of 1 knob were tried"):
        ask(
            proposer,
            tmp_path,
            found,
            knobs=knobs,
            history=history,
            parent=parent,
            key=(6, 0),
        )


def test_search_without_knobs_is_exhausted(tmp_path):
    with pytest.raises(ProposerExhausted, match="no knob"):
        ask(SearchProposer(), tmp_path, VALUES, knobs=())


def test_search_refuses_files_that_it_cannot_write(tmp_path):
    knob = Knob("gone.toml", "a", "float", low=0.0, high=1.0)
    with pytest.raises(ProposalRefused, match=r"gone\.toml"):
        ask(SearchProposer(), tmp_path, {"a": 0.5}, knobs=(knob,))


def test_search_keeps_the_line_ends_of_a_file(tmp_path):
    ask(SearchProposer(), tmp_path, VALUES)
    place = tmp_path / "artifact" / FILE
    place.write_bytes(place.read_bytes().replace(b"\n", b"\r\n"))
    knobs = tuple(KnobValue(knob, VALUES[knob.key]) for knob in KNOBS)
    start = Candidate(START, "t")
    request = ProposalRequest(
        1,
        0,
        tmp_path,
        ArtifactSchema("artifact"),
        "",
        start,
        (),
        (Node(start, mean=0.5),),
        (),
        None,
        Random(3),
        knobs,
    )
    SearchProposer().propose(request)
    data = place.read_bytes()
    assert data.count(b"\r\n") == data.count(b"\n") == len(VALUES)


# -- evidence -----------------------------------------------------------------------


def chain_of(first, gain, parent=None):
    parent = parent or Candidate(START, "t")
    child = Candidate("c0001", "u", START, START, 1, 0, data=first.data)
    return Node(parent, mean=0.5), Node(child, mean=0.5 + gain)


def test_chain_goes_on_in_a_direction_that_gained(tmp_path):
    knobs = KNOBS[:1]
    values, first = ask(SearchProposer(), tmp_path, {"a": 1.0}, knobs=knobs)
    further, second = ask(
        SearchProposer(),
        tmp_path,
        values,
        knobs=knobs,
        nodes=chain_of(first, 0.01),
        key=(1, 1),
    )
    assert (further["a"] - values["a"]) * (values["a"] - 1.0) > 0
    assert "same direction" in second.changelog[0].reason
    assert "c0001" in second.changelog[0].evidence[0]


def test_chain_takes_a_loss_back(tmp_path):
    """After a loss the other knobs are those of the parent again."""
    for seed in range(20):
        values, first = ask(SearchProposer(), tmp_path, VALUES, seed=seed)
        found, _ = ask(
            SearchProposer(),
            tmp_path,
            values,
            nodes=chain_of(first, -0.2),
            key=(1, 1),
            seed=seed,
        )
        assert found not in (VALUES, values)
        from_parent = sum(found[key] != VALUES[key] for key in VALUES)
        assert from_parent <= 3


def test_search_does_not_repeat_a_direction_that_was_refused(tmp_path):
    knobs = KNOBS[:1]
    values, first = ask(SearchProposer(), tmp_path, {"a": 1.0}, knobs=knobs)
    shared = {"knobs": knobs, "nodes": chain_of(first, 0.01), "key": (1, 1)}
    refused, _ = ask(SearchProposer(), tmp_path, values, **shared)
    again, _ = ask(SearchProposer(), tmp_path, values, feedback="no", **shared)
    assert again != refused


def some_history(count, folder):
    history = []
    proposer = SearchProposer()
    for number in range(1, count + 1):
        found, proposal = ask(
            proposer, folder, VALUES, history=history, key=(number, 0)
        )
        gain = 0.3 - abs(found["a"] - 1.4) * 0.3 + (0.1 if found["flag"] else 0.0)
        history.append(attempt(number, proposal, gain))
    return history


def test_same_history_and_randomness_give_the_same_proposal(tmp_path):
    history = some_history(24, tmp_path)
    warm = SearchProposer()
    for length in (8, 20, 24, 12):  # a cache that has seen other prefixes
        ask(warm, tmp_path, VALUES, history=history[:length], key=(90, 0))
    for length in (6, 12, 24):
        cold = ask(
            SearchProposer(), tmp_path, VALUES, history=history[:length], key=(99, 0)
        )
        again = ask(warm, tmp_path, VALUES, history=history[:length], key=(99, 0))
        assert again == cold


def test_slots_may_ask_at_the_same_time(tmp_path):
    history = some_history(16, tmp_path)
    shared = SearchProposer()

    def one(number, proposer):
        return ask(
            proposer,
            tmp_path / str(number),
            VALUES,
            history=history[: 8 + number],
            key=(50 + number, 0),
        )

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda number: one(number, shared), range(8)))
    assert together == [one(number, SearchProposer()) for number in range(8)]


def test_attempts_of_other_proposers_do_no_harm(tmp_path):
    history = some_history(8, tmp_path)
    foreign = Attempt("c0100", "c0099", 100, 0, {}, None, False, {"knobs": "none"})
    found, _ = ask(SearchProposer(), tmp_path, VALUES, history=[*history, foreign])
    assert found != VALUES


def test_long_histories_do_not_slow_the_search_down(tmp_path):
    """What optuna and the surrogate see is bounded, what was tried is not."""
    knob = KNOBS[0]
    history = [
        Attempt(
            f"c{number:04}",
            START,
            number,
            0,
            {},
            number % 7 / 10,
            False,
            {"knobs": {f"{FILE}:a": number / 10_000}},
        )
        for number in range(1, 2001)
    ]
    space = KnobSpace.of([knob])
    memory = Memory()
    for count in (2000, 650, 130):
        known = memory.recall(space, history[:count])
        assert len(known.observations) <= 400
        assert known == Memory().recall(space, history[:count])
        assert known.tried(space.key({f"{FILE}:a": 0.0001}))
        assert known.tried(space.key({f"{FILE}:a": 0.05})) is (count >= 500)
    other = [history[5], *history[:3]]
    assert memory.recall(space, other) == Memory().recall(space, other)


# -- the space ----------------------------------------------------------------------

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def knobs_of_all_kinds(draw):
    kind = draw(st.sampled_from(["float", "int", "log", "logint", "step"]))
    low = draw(st.integers(-50, 50))
    high = low + draw(st.integers(1, 500))
    if kind == "int":
        step = draw(st.sampled_from([None, 1, 3]))
        return Knob(FILE, "k", "int", low=low, high=high, step=step)
    if kind == "step":
        return Knob(FILE, "k", "float", low=low, high=high, step=0.1)
    if kind == "float":
        scale = 10.0 ** draw(st.integers(-6, 3))
        return Knob(FILE, "k", "float", low=low * scale, high=high * scale)
    if kind == "logint":
        return Knob(FILE, "k", "int", low=1, high=1 + abs(high), log=True)
    top = 10.0 ** draw(st.integers(-3, 4))
    return Knob(
        FILE, "k", "float", low=top / 10 ** draw(st.integers(1, 6)), high=top, log=True
    )


@settings(deadline=None)
@given(knobs_of_all_kinds(), st.floats(0, 1), st.integers(0, 100))
def test_values_stay_in_range_and_on_their_grid(knob, place, seed):
    axis = Axis(knob)
    value = axis.value(place)
    assert knob.low <= value <= knob.high
    assert isinstance(value, int) is (knob.type == "int")
    assert axis.value(axis.place(value)) == pytest.approx(value, rel=0.06)
    assert axis.rounded(float(value)) == value
    other = axis.another(value, Random(seed), 0.2)
    assert knob.low <= other <= knob.high
    assert other != value or axis.count <= 2
    if knob.step:
        steps = (value - knob.low) / knob.step
        assert steps == pytest.approx(round(steps), abs=1e-6)


def test_floats_are_rounded_to_what_a_person_would_write():
    k1 = Axis(Knob(FILE, "k", "float", low=0.4, high=2.5))
    rate = Axis(Knob(FILE, "k", "float", low=1e-5, high=1e-1, log=True))
    assert k1.rounded(1.23456789) == 1.23
    assert rate.rounded(0.000123456) == 0.00012


def test_choices_keep_their_types():
    axis = Axis(Knob(FILE, "k", "choice", choices=(1, "1", True, 1.0)))
    assert [axis.knows(value) for value in (1, "1", True, 1.0, 2)] == [True] * 4 + [
        False
    ]
    seen = {repr(axis.another(1, Random(seed), 0.2)) for seed in range(40)}
    assert seen == {"'1'", "True", "1.0"}
    space = KnobSpace.of([axis.knob])
    assert len({space.key({axis.name: value}) for value in axis.options}) == 4


# -- is it any good -----------------------------------------------------------------


class Surface:
    """Eighty cases whose scores depend on six knobs, each a little differently."""

    def __init__(self, seed):
        rng = Random(seed)
        self.best = (
            rng.uniform(0.6, 1.8),
            rng.uniform(-3.5, -1),
            rng.uniform(10, 35),
            rng.uniform(-0.8, 0.4),
        )
        good = rng.choice("yzw")
        self.modes = {m: 1.0 if m == good else rng.uniform(0.2, 0.7) for m in "xyzw"}
        self.cases = [f"t.py::c{at}" for at in range(80)]
        self.own = {
            case: (rng.uniform(0.2, 0.85), [rng.gauss(0, 0.25) for _ in range(4)])
            for case in self.cases
        }

    @property
    def start(self):
        a, rate, n, c = self.best
        return {
            "a": round(max(0.0, a - 0.6), 2),
            "rate": round(10 ** min(0, rate + 1.0), 4),
            "n": max(1, int(n - 9)),
            "flag": False,
            "mode": "x",
            "c": round(min(1.0, c + 0.5), 2),
        }

    def score(self, values, case):
        bar, own = self.own[case]
        a = (values["a"] - self.best[0] - 0.2 * own[0]) / 1.2
        rate = (math.log10(values["rate"]) - self.best[1] - own[1]) / 2.5
        n = (values["n"] - self.best[2] - 8 * own[2]) / 25
        c = (values["c"] - self.best[3] - 0.3 * own[3]) / 1.2
        whole = max(0.0, 1 - 0.9 * (a * a + 0.8 * rate * rate + 0.7 * n * n + c * c))
        whole *= 0.55 + 0.45 * self.modes[values["mode"]]
        whole *= 1.0 if values["flag"] else 0.8
        if int(case[7:]) % 2:
            return float(whole >= bar)
        return whole

    def mean(self, values, cases):
        return sum(self.score(values, case) for case in cases) / len(cases)


class SmallLoop:
    """The published iteration on a surface, in memory but for the knobs' file."""

    def __init__(self, seed, folder):
        self.surface = Surface(seed)
        self.folder = folder
        self.draws = SeededDraws(seed)
        self.train = tuple(Case(c, Split.TRAIN) for c in self.surface.cases[:40])
        self.val = self.surface.cases[40:]
        start = self.surface.start
        self.values = {START: start}
        self.believed = {
            START: {c.id: self.surface.score(start, c.id) for c in self.train}
        }
        self.population = (self.member(Candidate(START, "t")),)
        self.history = []
        self.proposer = SearchProposer()
        self.left = 0

    def member(self, candidate):
        values = self.values[candidate.id]
        scores = {case: self.surface.score(values, case) for case in self.val}
        return Member(candidate, scores, sum(scores.values()) / len(scores))

    def run(self, proposals):
        self.left = proposals
        number = 0
        while self.left:
            number += 1
            self.iterate(number)
        return max(member.mean for member in self.population)

    def iterate(self, number):
        member = LeadCount().sample(self.population, self.draws.rng("parent", number))
        parent = member.candidate
        batch = Guards().sample(
            BatchRequest(self.train, 8, number, self.believed[parent.id]), self.draws
        )
        ids = [case.id for case in batch]
        nodes = [Node(parent, mean=self.surface.mean(self.values[parent.id], ids))]
        closed = []
        base = parent
        for step in range(min(6, self.left)):
            self.left -= 1
            found, proposal = ask(
                self.proposer,
                self.folder,
                self.values[base.id],
                history=self.history,
                nodes=nodes,
                parent=parent,
                key=(number, step),
                seed=self.draws.rng("seed").random(),
            )
            name = f"c{number:04}-{step}"
            child = Candidate(
                name, name, parent.id, base.id, number, step, data=proposal.data
            )
            self.values[name] = found
            scores = {case: self.surface.score(found, case) for case in ids}
            mean = sum(scores.values()) / len(scores)
            gain = mean - nodes[0].mean
            nodes.append(Node(child, mean=mean))
            accepted = gain > 1e-8
            closed.append(
                Attempt(
                    name, parent.id, number, step, scores, gain, accepted, child.data
                )
            )
            base = child
            if accepted:
                self.believed[name] = {**self.believed[parent.id], **scores}
                oldest = sorted(self.population, key=lambda m: m.candidate.id)
                members = [*oldest, self.member(child)]
                self.population = ParetoTopN(3).select(members)
                break
        self.history += closed


def random_search(seed, proposals):
    """The best val mean of settings drawn evenly: it even looks at val each time."""
    surface = Surface(seed)
    rng = Random(seed)
    axes = {knob.key: Axis(knob) for knob in KNOBS}
    return max(
        surface.mean(
            {key: axis.anywhere(rng) for key, axis in axes.items()},
            surface.cases[40:],
        )
        for _ in range(proposals)
    )


@pytest.mark.slow
def test_search_beats_random_search_at_equal_proposals(tmp_path):
    gains = [
        SmallLoop(seed, tmp_path).run(60) - random_search(seed, 60)
        for seed in range(20)
    ]
    assert sum(gain > 0 for gain in gains) >= 17
    assert median(gains) > 0.05
