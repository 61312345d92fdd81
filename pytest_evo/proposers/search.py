"""The embedded proposer: turns declared knobs; needs no model and no key.

Nothing is remembered that could not be rebuilt: what is proposed follows from the
history, the chain and the randomness of the request alone. What is kept between
requests is a cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from pathlib import PurePosixPath
from typing import cast

from pytest_evo.artifact.guard import read_inside
from pytest_evo.artifact.guard import write_inside
from pytest_evo.artifact.knobs import write_knob
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import EPSILON
from pytest_evo.models import Json
from pytest_evo.models import Node
from pytest_evo.models import Proposal
from pytest_evo.proposers import surrogate
from pytest_evo.proposers.knobspace import Axis
from pytest_evo.proposers.knobspace import KnobSpace
from pytest_evo.proposers.knobspace import Value
from pytest_evo.proposers.knobspace import Values
from pytest_evo.proposers.memory import base_values
from pytest_evo.proposers.memory import CHANGED
from pytest_evo.proposers.memory import KNOBS
from pytest_evo.proposers.memory import Known
from pytest_evo.proposers.memory import known_changes
from pytest_evo.proposers.memory import known_values
from pytest_evo.proposers.memory import Memory
from pytest_evo.proposers.tpe import Suggestions
from pytest_evo.protocols import ProposalRequest
from pytest_evo.wording import count

_SPREAD = 0.2  # of a single step, as a share of the scale
_POOL = 24
_OPTIMISM = 1.5
_MOST_LISTED = 20_000


@dataclass(frozen=True, slots=True)
class Move:
    """A setting that could be tried, and why."""

    values: Values
    why: str
    evidence: tuple[str, ...] = ()


class SearchProposer:
    """Proposes values of the declared knobs.

    A proposal goes out from the values of its base and changes a few knobs. In a chain
    it goes on where the last node gained, and turns round where it lost. Else small
    steps and what optuna's TPE suggests are ranked by what earlier iterations tell.
    """

    def __init__(self) -> None:
        self._suggestions = Suggestions()
        self._memory = Memory()

    def propose(self, request: ProposalRequest) -> Proposal:
        """Write new knob values into ``request.workspace / "artifact"``.

        Raises:
            ProposerExhausted: there are no knobs, or every setting was tried.
            ProposalRefused: a file cannot be read or written.
        """
        space = KnobSpace.of([knob.knob for knob in request.knobs])
        if not space.axes:
            raise ProposerExhausted("the search proposer has no knob to turn")
        base = {
            axis.name: cast(Value, knob.value)
            for axis, knob in zip(space.axes, request.knobs, strict=True)
        }
        known = self._memory.recall(space, request.history)
        move = _Choice(space, base, request, known, self._suggestions).move()
        changed = {
            axis.name: (base[axis.name], move.values[axis.name])
            for axis in space.axes
            if base[axis.name] != move.values[axis.name]
        }
        _write(request.workspace / "artifact", space, changed)
        data: dict[str, Json] = {
            KNOBS: dict(move.values),
            CHANGED: {name: [old, new] for name, (old, new) in changed.items()},
        }
        return Proposal(changelog=_changelog(space, changed, move), data=data)


# -- choosing ----------------------------------------------------------------------


class _Choice:
    """One request, worked out."""

    def __init__(
        self,
        space: KnobSpace,
        base: Values,
        request: ProposalRequest,
        known: Known,
        suggestions: Suggestions,
    ) -> None:
        self._space = space
        self._base = base
        self._request = request
        self._suggestions = suggestions
        self._rng = request.rng
        self._known = known
        self._parent = self._parent_values()
        self._met = {space.key(base), space.key(self._parent)}
        for node in request.nodes:
            values = known_values(space, node.candidate.data.get(KNOBS))
            if values is not None:
                self._met.add(space.key(values))

    def move(self) -> Move:
        """The setting to try."""
        # a direction is no matter of chance: refused once, it would be refused again
        directed = None if self._request.feedback else self._directed()
        if directed is not None and self._is_new(directed.values):
            return directed
        origin, evidence = self._origin()
        pool = self._pool(origin)
        if not pool:
            return self._leftover(origin)
        return self._best(pool, origin, evidence)

    def _is_new(self, values: Values) -> bool:
        key = self._space.key(values)
        return key not in self._met and not self._known.tried(key)

    # what the chain, or the parent's own success, points to

    def _parent_values(self) -> Values:
        """The parent's values: the base's, or what the first node was made from."""
        if len(self._request.nodes) < 2:
            return self._base
        data = self._request.nodes[1].candidate.data
        return base_values(self._space, data) or self._base

    def _last(self) -> tuple[Node, dict[str, tuple[Value, Value]], float] | None:
        """The node that the base is, what it changed and gained over the parent."""
        nodes = self._request.nodes
        if len(nodes) < 2 or nodes[0].mean is None or nodes[-1].mean is None:
            return None
        data = nodes[-1].candidate.data
        changed = known_changes(self._space, data.get(CHANGED))
        if not changed or known_values(self._space, data.get(KNOBS)) != self._base:
            return None
        return nodes[-1], changed, nodes[-1].mean - nodes[0].mean

    def _directed(self) -> Move | None:
        last = self._last()
        if last is not None:
            node, changed, gain = last
            said = f"{node.candidate.id}: batch mean {gain:+.4f} against the parent"
            if gain >= -EPSILON:
                values = self._along(self._base, changed, 1.0)
                return Move(values, "goes on in the same direction", (said,))
            if self._rng.random() < 0.5:
                back = -self._rng.choice((0.5, 1.0))
                values = self._along(self._parent, changed, back)
                return Move(values, "the other direction lost", (said,))
            return None
        parent = self._request.parent
        changed_by_parent = known_changes(self._space, parent.data.get(CHANGED))
        fresh = len(self._request.nodes) < 2
        if changed_by_parent and fresh and self._rng.random() < 0.35:
            factor = self._rng.choice((0.5, 1.0))
            values = self._along(self._base, changed_by_parent, factor)
            why = "goes on in the direction that was accepted"
            return Move(values, why, (f"{parent.id}: accepted",))
        return None

    def _along(
        self, start: Values, changed: dict[str, tuple[Value, Value]], factor: float
    ) -> Values:
        """Numeric knobs moved by ``factor`` times what they were moved before."""
        moved = dict(start)
        for axis in self._space.axes:
            if axis.numeric and axis.name in changed:
                old, new = changed[axis.name]
                distance = factor * (axis.place(new) - axis.place(old))
                if distance:
                    moved[axis.name] = axis.moved(start[axis.name], distance)
        return moved

    def _origin(self) -> tuple[Values, tuple[str, ...]]:
        """Where steps go out from: the base, or the parent if the base lost."""
        last = self._last()
        if last is not None and last[2] < -EPSILON:
            said = f"{last[0].candidate.id}: batch mean {last[2]:+.4f}, taken back"
            return self._parent, (said,)
        return self._base, ()

    # candidates and their ranking

    def _pool(self, origin: Values) -> list[Move]:
        found: dict[tuple[str, ...], Move] = {}
        for _ in range(4 * _POOL):
            if len(found) >= _POOL:
                break
            values = self._step(origin)
            if self._is_new(values):
                found.setdefault(self._space.key(values), Move(values, "a small step"))
        if len(self._known.observations) >= surrogate.LEAST:
            why = "a suggestion of the tree-structured Parzen estimator"
            for values in self._suggested(origin):
                if self._is_new(values):
                    found.setdefault(self._space.key(values), Move(values, why))
        return list(found.values())

    def _step(self, origin: Values) -> Values:
        """A few knobs, each moved a little or switched."""
        return {
            **origin,
            **{
                axis.name: axis.another(origin[axis.name], self._rng, _SPREAD)
                for axis in self._few(self._space.axes)
            },
        }

    def _few(self, axes: Sequence[Axis]) -> list[Axis]:
        count = self._rng.choices((1, 2, 3), (5, 3, 2))[0]
        return self._rng.sample(list(axes), min(count, len(axes)))

    def _suggested(self, origin: Values) -> Iterable[Values]:
        """What optuna suggests, in a few knobs at a time."""
        seed = self._rng.getrandbits(32)
        observations = self._known.observations
        for whole in self._suggestions.ask(self._space, observations, seed):
            differing = [
                axis
                for axis in self._space.axes
                if whole[axis.name] != origin[axis.name]
            ]
            for _ in range(4 if differing else 0):
                few = self._few(differing)
                yield {**origin, **{axis.name: whole[axis.name] for axis in few}}

    def _best(
        self, pool: Sequence[Move], origin: Values, evidence: tuple[str, ...]
    ) -> Move:
        observations = self._known.observations
        if len(observations) < surrogate.LEAST:
            return Move(pool[0].values, pool[0].why, evidence)
        hopes = surrogate.hopes(
            self._space,
            observations,
            origin,
            [move.values for move in pool],
            _OPTIMISM,
        )
        best = pool[max(range(len(pool)), key=hopes.__getitem__)]
        told = f"{len(observations)} earlier settings rank it first of {len(pool)}"
        return Move(best.values, best.why, (*evidence, told))

    def _leftover(self, origin: Values) -> Move:
        """Any setting that is left, when near ones are not."""
        for _ in range(200):
            values = {axis.name: axis.anywhere(self._rng) for axis in self._space.axes}
            if self._is_new(values):
                return Move(values, "everything near was tried")
        if self._space.size <= _MOST_LISTED:
            for combination in product(*(_listed(axis) for axis in self._space.axes)):
                names = (axis.name for axis in self._space.axes)
                values = dict(zip(names, combination, strict=True))
                if self._is_new(values):
                    return Move(values, "one of the last settings not tried")
        raise ProposerExhausted(
            f"all settings of {count(len(self._space.axes), 'knob')} were tried; "
            "widen their ranges or declare more knobs"
        )


def _listed(axis: Axis) -> list[Value]:
    """Every value of an axis, each once."""
    if not axis.numeric:
        return list(axis.options)
    steps = max(1, round(1 / axis.least))
    return list(dict.fromkeys(axis.value(at / steps) for at in range(steps + 1)))


# -- reading and writing -----------------------------------------------------------


def _write(
    root: Path, space: KnobSpace, changed: dict[str, tuple[Value, Value]]
) -> None:
    by_file: dict[str, list[tuple[str, Value]]] = {}
    for axis in space.axes:
        if axis.name in changed:
            new = changed[axis.name][1]
            by_file.setdefault(axis.knob.file, []).append((axis.knob.key, new))
    for file, settings in by_file.items():
        suffix = PurePosixPath(file).suffix.lower()
        try:
            text = read_inside(root, file).decode()
            for key, value in settings:
                text = write_knob(text, suffix, key, value)
        except (ArtifactProblem, UnicodeDecodeError) as error:
            raise ProposalRefused(f"{file}: {error}") from error
        write_inside(root, file, text.encode())


def _changelog(
    space: KnobSpace, changed: dict[str, tuple[Value, Value]], move: Move
) -> tuple[ChangelogEntry, ...]:
    by_file: dict[str, list[str]] = {}
    for axis in space.axes:
        if axis.name in changed:
            old, new = changed[axis.name]
            said = f"{axis.knob.key} {_shown(old)} -> {_shown(new)}"
            by_file.setdefault(axis.knob.file, []).append(said)
    return tuple(
        ChangelogEntry(file, f"{', '.join(said)}: {move.why}", evidence=move.evidence)
        for file, said in by_file.items()
    )


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
