"""Prompts as files: those that are shipped, or a directory of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import ChoiceLoader
from jinja2 import Environment
from jinja2 import FileSystemLoader
from jinja2 import meta
from jinja2 import StrictUndefined
from jinja2 import TemplateError
from jinja2 import TemplateNotFound

from pytest_evo.errors import SettingsProblem

SHIPPED = Path(__file__).parent / "prompts"

Variables = Mapping[str, frozenset[str]]
"""The names that each prompt may use."""


class Prompts:
    """Renders the prompts of one diagnoser.

    Args:
        variables: the prompts that are needed, with the names that each may use.
        folder: has all of them; without it those that are shipped are taken. What
            they include may be there too, or is taken from the shipped ones.

    Raises:
        SettingsProblem: a prompt is missing, malformed or uses an unknown name.
    """

    def __init__(self, variables: Variables, folder: Path | None = None) -> None:
        places = [SHIPPED] if folder is None else [folder, SHIPPED]
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(place) for place in places]),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        if folder is not None:
            _check_folder(folder, variables)
        for name, known in variables.items():
            self._check(name, known, folder or SHIPPED)

    def render(self, name: str, /, **values: object) -> str:
        """One prompt with its values filled in; texts in them are not templates."""
        return self._environment.get_template(name).render(values)

    def _check(self, name: str, known: frozenset[str], folder: Path) -> None:
        """Find what would otherwise fail in the middle of a run."""
        try:
            waiting, used = [name], set()
            while waiting:
                source = self._source(waiting.pop())
                parsed = self._environment.parse(source)
                used |= meta.find_undeclared_variables(parsed)
                waiting += [
                    one for one in meta.find_referenced_templates(parsed) if one
                ]
            self._environment.get_template(name)
        except TemplateNotFound as error:
            raise SettingsProblem(
                f"diagnosis_prompts: {folder / name} includes {error.name!r}, which is "
                f"neither there nor in {SHIPPED}. Correct the name or add the file."
            ) from error
        except (TemplateError, UnicodeDecodeError) as error:
            raise SettingsProblem(
                f"diagnosis_prompts: {folder / name} is no template: {error}. See "
                f"{SHIPPED / name} for one that is."
            ) from error
        if unknown := sorted(used - known):
            raise SettingsProblem(
                f"diagnosis_prompts: {folder / name} uses {', '.join(unknown)}, which "
                f"it is not given. It may use: {', '.join(sorted(known))}."
            )

    def _source(self, name: str) -> str:
        assert self._environment.loader is not None
        return self._environment.loader.get_source(self._environment, name)[0]


def _check_folder(folder: Path, variables: Variables) -> None:
    if not folder.is_dir():
        raise SettingsProblem(
            f"diagnosis_prompts = {str(folder)!r}: there is no such directory. Copy "
            f"{SHIPPED} there and change the copies, or remove the setting."
        )
    missing = [name for name in variables if not (folder / name).is_file()]
    if missing:
        raise SettingsProblem(
            f"diagnosis_prompts = {str(folder)!r}: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not there. Copy the missing ones "
            f"from {SHIPPED}."
        )
