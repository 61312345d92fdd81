"""What a diagnosing model is shown: the chain, traces, files, within a budget."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field

from pytest_evo.artifact.schema import kind_of
from pytest_evo.diagnosis.evidence import collect
from pytest_evo.diagnosis.evidence import Sources
from pytest_evo.diagnosis.quality import Ground
from pytest_evo.diagnosis.rendering import cell
from pytest_evo.diagnosis.rendering import changelog_text
from pytest_evo.diagnosis.rendering import diagnoses_text
from pytest_evo.diagnosis.rendering import facts_text
from pytest_evo.diagnosis.rendering import scores_text
from pytest_evo.evidence import CaseHistory
from pytest_evo.evidence import Evidence
from pytest_evo.evidence import Trace
from pytest_evo.hostile import cut
from pytest_evo.hostile import fenced
from pytest_evo.hostile import share
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash

LARGEST_FILE = 30_000
"""Characters of one file that are shown at most."""
MOST_FILES = 60


@dataclass(frozen=True, slots=True)
class Versions:
    """The candidates' files: versions by hash, contents by theirs."""

    tree: Callable[[TreeHash], Tree]
    blob: Callable[[str], bytes]
    schema: ArtifactSchema
    redact: Callable[[str], str] = str

    def declared(self) -> str:
        """The declared files as a list, the same for a whole run."""
        rows = [
            f"- `{cell(rule.path)}` ({rule.kind}"
            f"{'' if rule.edit else ', read-only'}): {cell(rule.about) or 'no remark'}"
            for rule in self.schema.files
        ]
        return "\n".join(rows) or "None is declared: all files may change."


@dataclass(frozen=True, slots=True)
class Briefing:
    """One node in the light of those before it."""

    evidence: Evidence
    versions: Versions
    last: Node
    _paths: dict[str, str] = field(default_factory=dict)  # path -> blob

    @classmethod
    def of(cls, nodes: Sequence[Node], versions: Versions) -> Briefing:
        """A briefing on the last of the nodes, whose rollouts bring their details."""
        sources = Sources(
            tree=versions.tree, schema=versions.schema, redact=versions.redact
        )
        evidence = collect(nodes, (), sources)
        newest = evidence.nodes[-1]
        entries = versions.tree(newest.candidate.tree).entries
        paths = {one.path: one.blob for one in entries if one.kind == "file"}
        return cls(evidence, versions, newest, paths)

    @property
    def node(self) -> str:
        """The newest candidate's id."""
        return self.last.candidate.id

    @property
    def files(self) -> frozenset[str]:
        """The files of the newest node."""
        return frozenset(self._paths)

    def failing(self) -> tuple[CaseId, ...]:
        """Cases below the full score at the newest node, in the order they ran.

        A case that only infrastructure lost says nothing of the candidate.
        """
        return tuple(row.case for row in self.evidence.histories if _fails(row))

    def earlier(self, cases: Collection[CaseId]) -> tuple[str, ...]:
        """Names of the diagnoses before the newest node that are of these cases."""
        return tuple(
            name
            for name, diagnosis in self.evidence.diagnoses
            if not set(diagnosis.cases).isdisjoint(cases)
        )

    def chain_text(self, budget: int) -> str:
        """Scores, facts, changelog and diagnoses; the same for all cases."""
        evidence = self.evidence
        parts = [
            scores_text(evidence.nodes, evidence.histories),
            facts_text(evidence.facts),
            changelog_text(evidence.nodes),
        ]
        if evidence.diagnoses:
            parts.append(diagnoses_text(evidence.diagnoses))
        rooms = share([len(part) for part in parts], budget)
        return "\n".join(cut(one, room) for one, room in zip(parts, rooms, strict=True))

    def traces(self, cases: Collection[CaseId]) -> list[Trace]:
        """Traces of cases on the newest node, then on those that did best before."""
        chosen = [
            trace
            for trace in self.evidence.traces
            if trace.case in cases and trace.node == self.node
        ]
        for case in cases:
            before = [
                trace
                for trace in self.evidence.traces
                if trace.case == case and trace.node != self.node
            ]
            if before:
                chosen.append(max(before, key=lambda trace: trace.score or 0.0))
        return chosen

    def newest(self, cases: Collection[CaseId]) -> dict[CaseId, Trace]:
        """One trace of each of these cases on the newest node, in their order."""
        found: dict[CaseId, Trace] = {}
        for trace in self.evidence.traces:
            if trace.node == self.node and trace.case in cases:
                found.setdefault(trace.case, trace)
        return {case: found[case] for case in cases if case in found}

    def files_text(self, cases: Collection[CaseId], budget: int) -> str:
        """The files that the cases read; all of them where that is not certain."""
        read: set[str] = set()
        certain = True
        for rollout in self.last.rollouts:
            if rollout.case in cases:
                read.update(rollout.reach.files)
                certain = certain and rollout.reach.exact
        shown = [path for path in self._paths if path in read] if certain else []
        shown = (shown or sorted(self._paths, key=lambda path: path not in read))[
            :MOST_FILES
        ]
        contents = {path: self._content(path) for path in shown}
        sizes = [min(len(text), LARGEST_FILE) for text in contents.values()]
        rooms = share(sizes, budget)
        lines = []
        for (path, text), room in zip(contents.items(), rooms, strict=True):
            kind = kind_of(self.versions.schema, path)
            lines += [f"`{cell(path)}` ({kind}):", "", fenced(text, room), ""]
        others = [path for path in self._paths if path not in contents]
        if others:
            named = ", ".join(f"`{cell(path)}`" for path in others[:MOST_FILES])
            lines += [f"Not read by these cases, or left out: {named}.", ""]
        return "\n".join(lines)

    def _content(self, path: str) -> str:
        data = self.versions.blob(self._paths[path])
        if b"\0" in data[:8_000]:
            return f"[{len(data)} bytes that are no text]"
        return self.versions.redact(data.decode("utf-8", "replace"))

    def ground(self, cases: Collection[CaseId], traces: Sequence[Trace]) -> Ground:
        """What a diagnosis of these cases is checked against."""
        texts = [text for trace in traces for text in trace.texts()]
        return Ground(self.evidence, texts, self.files, self.earlier(cases))


def _fails(row: CaseHistory) -> bool:
    if not row.outcomes[-1] or all(end is Outcome.LOST for end in row.outcomes[-1]):
        return False
    score = row.scores[-1]
    return score is None or score < 1 - EPSILON
