"""What the controller knows of cases by their hashes, once the splits are settled."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from functools import cached_property

from pytest_evo.artifact.copies import copies
from pytest_evo.artifact.copies import long_texts
from pytest_evo.diagnosis.hiding import Hiding
from pytest_evo.models import Case
from pytest_evo.models import CaseMark
from pytest_evo.models import Split
from pytest_evo.models import Tree
from pytest_evo.settings import Settings
from pytest_evo.spots import Spots


class Knowing:
    """Hides texts of cases from proposers, and finds those that an edit copies.

    Args:
        settings: say whether answers of train cases are hidden.
        marks: the collected cases.
        cases: the frozen cases; asked for when the first proposal is made.
        blob: a content by its hash.
    """

    def __init__(
        self,
        settings: Settings,
        marks: Sequence[CaseMark],
        cases: Callable[[], Sequence[Case]],
        blob: Callable[[str], bytes],
    ) -> None:
        self._settings = settings
        self._marks = marks
        self._frozen = cases
        self._blob = blob

    @cached_property
    def _hiding(self) -> Hiding:
        return Hiding(
            self._marks,
            self._frozen(),
            self._settings.answer_params,
            answers=self._settings.train_answers == "hidden",
        )

    @cached_property
    def _long(self) -> Spots:
        cases = self._frozen()
        train = {case.id for case in cases if case.split is Split.TRAIN}
        return long_texts(mark for mark in self._marks if mark.id in train)

    def hiding(self) -> Hiding:
        """What is hidden in this run."""
        return self._hiding

    def copied(self, old: Tree, new: Tree) -> Iterable[str]:
        """Warnings of what an edit copies out of train cases."""
        return copies(old, new, self._blob, self._long)
