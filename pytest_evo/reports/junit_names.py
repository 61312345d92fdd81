"""Class and test names in JUnit XML."""

from __future__ import annotations

from pytest_evo.models import CaseId
from pytest_evo.reports.text import digest
from pytest_evo.reports.text import short_id

MAX_NAME = 250
"""Some readers stop at 1,000 characters, the columns of others at 255."""


class Namer:
    """Class and test names, as pytest writes them, each pair once."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._taken: set[tuple[str, str]] = set()

    def __call__(self, case: CaseId) -> tuple[str, str]:
        """``a/b.py::C::t[x]`` becomes ``a.b.C`` and ``t[x]``."""
        file, _, rest = case.partition("::")
        head, bracket, parameters = rest.partition("[")
        *classes, test = head.split("::")
        classname = ".".join([file.removesuffix(".py").replace("/", "."), *classes])
        name = test + bracket + parameters or file.rpartition("/")[2]
        return self.unique(classname, name, case)

    def unique(self, classname: str, name: str, identity: str) -> tuple[str, str]:
        """Both names within their limits; a second one of a pair gets a hash tail."""
        pair = (short_id(self._prefix + classname, MAX_NAME), short_id(name, MAX_NAME))
        while pair in self._taken:
            tail = digest(f"{identity}{len(self._taken)}")
            pair = (pair[0], f"{pair[1][: MAX_NAME - 13]}~{tail}")
        self._taken.add(pair)
        return pair
