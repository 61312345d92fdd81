"""The opening of a conversation, from prompt files: what never changes comes first."""

from __future__ import annotations

from pathlib import Path

from jinja2 import ChoiceLoader
from jinja2 import Environment
from jinja2 import FileSystemLoader
from jinja2 import StrictUndefined
from jinja2 import TemplateError

from pytest_evo.artifact.schema import editable
from pytest_evo.artifact.schema import kind_of
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import SettingsProblem
from pytest_evo.hostile import cut
from pytest_evo.hostile import fenced
from pytest_evo.hostile import one_line
from pytest_evo.proposers.llm.briefing import briefing
from pytest_evo.proposers.llm.workbench import Workbench
from pytest_evo.protocols import ProposalRequest

SHIPPED = Path(__file__).parent / "prompts"
NAMES = ("system.md", "tools.md", "blocks.md", "task.md", "step.md")
_MOST_BATCH = 100
_MOST_FEEDBACK = 4_000


class Prompts:
    """Renders the prompts; files of a folder of one's own come before the shipped ones.

    Raises:
        SettingsProblem: the folder is not there or has none of the prompts.
    """

    def __init__(self, folder: Path | None = None) -> None:
        places = [SHIPPED] if folder is None else [folder, SHIPPED]
        if folder is not None and not any((folder / name).is_file() for name in NAMES):
            raise SettingsProblem(
                f"prompts = {str(folder)!r} in [tool.pytest_evo.model_options] has "
                f"none of {', '.join(NAMES)}. Put at least one there, or remove it."
            )
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(place) for place in places]),
            undefined=StrictUndefined,
            autoescape=False,  # prompts are no HTML
            trim_blocks=True,
            lstrip_blocks=True,
        )
        try:
            for name in NAMES:
                self._environment.get_template(name)
        except TemplateError as error:
            raise SettingsProblem(
                f"the prompt {name} in {str(folder)!r} cannot be read: {error}"
            ) from error

    def opening(
        self, request: ProposalRequest, bench: Workbench, budget: int, *, tools: bool
    ) -> tuple[Message, ...]:
        """The first messages, with about ``budget`` characters of files and evidence.

        Raises:
            SettingsProblem: a prompt of one's own uses a name that is not there.
        """
        base = request.nodes[-1].candidate.id if request.nodes else request.parent.id
        files = files_text(bench, request, budget * 2 // 5)
        evidence = briefing(
            request.workspace / "evidence", request.evidence, budget - len(files)
        )
        try:
            system = self._render("system.md", tools=tools)
            task = self._render(
                "task.md", objective=request.objective, rules=request.schema.files
            )
            step = self._render(
                "step.md",
                step=request.step,
                base=base,
                parent=request.parent.id,
                batch=_listed(_cases(request)),
                evidence=evidence,
                files=files,
                feedback=cut(request.feedback or "", _MOST_FEEDBACK),
            )
        except TemplateError as error:
            raise SettingsProblem(
                f"a prompt cannot be filled in: {error}. Correct the files in prompts "
                "of [tool.pytest_evo.model_options]."
            ) from error
        # one message, because some servers insist on turns
        return (
            Message(Speaker.SYSTEM, system),
            Message(Speaker.USER, f"{task}\n\n{step}"),
        )

    def _render(self, name: str, /, **values: object) -> str:
        return self._environment.get_template(name).render(values).strip()


def _cases(request: ProposalRequest) -> tuple[str, ...]:
    """The cases as the evidence calls them: ids may hold expected answers."""
    told = tuple(row.case for row in request.evidence.histories)
    return told or request.batch


def _listed(batch: tuple[str, ...]) -> list[str]:
    shown = [one_line(case, 300) for case in batch[:_MOST_BATCH]]
    more = len(batch) - len(shown)
    return [*shown, f"and {more} more"] if more > 0 else shown


def files_text(bench: Workbench, request: ProposalRequest, budget: int) -> str:
    """The artifact's files with their contents, the small ones first, within a budget.

    What a file is for stands in the task; here are kind, size and text.
    """
    shown: list[str] = []
    named: list[str] = []
    texts: list[tuple[str, str | None]] = []
    for path in bench.names():
        try:
            texts.append((path, bench.text(path)))
        except ProposalRefused:
            texts.append((path, None))
    left = budget
    for path, text in sorted(texts, key=lambda row: len(row[1] or "")):
        kind = kind_of(request.schema, path)
        lock = "" if editable(request.schema, path) else ", read-only"
        head = f"`{one_line(path, 300)}` ({kind}{lock})"
        body = None if text is None else fenced(text)
        if body is not None and len(body) + len(head) + 8 <= left:
            shown.append(f"{head}\n{body}\n")
            left -= len(body) + len(head) + 8
        else:
            size = "no text" if text is None else f"{len(text)} characters"
            named.append(f"- {head}, {size}")
    if named:
        rows = cut("\n".join(named), max(400, left))
        shown.append(f"Not shown here:\n\n{rows}\n")
    return "\n".join(shown) or "There are no files yet."
