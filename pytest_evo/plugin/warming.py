"""Session fixtures that are set up once per worker, before anything is forked."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.plugin.isolation.reach import recorder

_NOT_THE_PROJECTS = ("_pytest.", "pytest_evo.")


def warmable(items: Iterable[pytest.Item]) -> tuple[str, ...]:
    """Fixtures of these tests that all candidates could share, by name.

    Of session scope, and neither ours nor pytest's own, whose modules the arguments of
    ``parametrize`` have too.
    """
    names: set[str] = set()
    for item in items:
        information = getattr(item, "_fixtureinfo", None)
        known = {} if information is None else information.name2fixturedefs
        for name, definitions in known.items():
            found = definitions[-1] if definitions else None
            if found is None or found.scope != "session":
                continue
            module = getattr(found.func, "__module__", None) or ""
            if not module.startswith(_NOT_THE_PROJECTS):
                names.add(name)
    return tuple(sorted(names))


class WarmFixtures:
    """Set up in the worker, shared by all its children, torn down with the session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._kept: list[Any] = []

    def set_up(self, names: Sequence[str], artifact: Path, project: Path) -> None:
        """Set the fixtures up, in the given order.

        Raises:
            SuiteProblem: a fixture is unknown, of another scope, fails, or reads the
                artifact, which would show every candidate what the first one has.
        """
        state = self._session._setupstate
        if names and self._session not in state.stack:
            state.stack[self._session] = ([self._session.teardown], None)
        for name in names:
            item = self._user_of(name)
            recorder().begin(artifact, artifact, project)
            ask = partial(item._request.getfixturevalue, name)
            state.stack[item] = ([], None)  # only who is being set up may ask
            try:
                call = pytest.CallInfo.from_call(ask, when="setup")
            finally:
                del state.stack[item]
            seen = recorder().end()
            if call.excinfo is not None:
                raise SuiteProblem(
                    f"warm_fixtures: {name!r} failed: {call.excinfo.exconly()}"
                )
            if seen.reach.files:
                raise SuiteProblem(
                    f"warm_fixtures: {name!r} reads {', '.join(seen.reach.files[:3])} "
                    "of the artifact, so it has to be set up for every candidate; take "
                    "it out of warm_fixtures"
                )
        if names:
            self._kept = list(state.stack[self._session][0])

    def keep(self) -> None:
        """In a child: leave their tear-down to the worker."""
        if self._kept:
            finalizers = self._session._setupstate.stack[self._session][0]
            finalizers[:] = [one for one in finalizers if one not in self._kept]

    def _user_of(self, name: str) -> Any:
        """A test that uses the fixture, through which it can be asked for."""
        for item in self._session.items:
            definitions = getattr(item, "_fixtureinfo", None)
            found = definitions and definitions.name2fixturedefs.get(name)
            if found:
                if found[-1].scope == "session":
                    return item
                raise SuiteProblem(
                    f"warm_fixtures: {name!r} is of scope {found[-1].scope}; only "
                    "session fixtures can be shared by all candidates"
                )
        raise SuiteProblem(
            f"warm_fixtures: no test uses a fixture {name!r}; correct the name or take "
            "it out"
        )
