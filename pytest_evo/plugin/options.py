"""The command line: a stable contract. No option has an optional value."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from collections.abc import Sequence

import pytest

_WHOLE = re.compile(r"[0-9]{1,15}")
_TIME = re.compile(r"[0-9]+(?:\.[0-9]+)?|(?=.)(?:[0-9]+h)?(?:[0-9]+m)?(?:[0-9]+s)?")
ISOLATIONS = ("auto", "fork", "fresh", "workspace")
GATE_POLICIES = ("default", "strict")
GATE_ARMS = ("artifact", "tree")

# Options that ask for more than a plain run of the tests.
MODES = ("evolve", "evo_gate", "evo_baseline_update", "evo_resume", "evo_dry_run")


def _whole(least: int, like: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if _WHOLE.fullmatch(text) and int(text) >= least:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of at least {least}, in digits; "
            f"type one like {like}"
        )

    return whole_number


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0:
        return value
    raise argparse.ArgumentTypeError(
        f"{text!r} is not an amount of at least 0; type one like 2.5"
    )


def _seconds(text: str) -> float:
    value = _amount(text)
    if value == 0:
        raise argparse.ArgumentTypeError(
            "0 seconds leave no time; type a number of seconds like 60"
        )
    return value


def _duration(text: str) -> str:
    if _TIME.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a time; type seconds, or a number with s, m or h, like 90m"
    )


def _text(text: str) -> str:
    if text.strip():
        return text
    raise argparse.ArgumentTypeError("the value is empty; type one or leave it out")


# option, type, metavar, help; the setting is the option less "--evo-" and with "_"
_VALUES: tuple[tuple[str, Callable[[str], object], str, str], ...] = (
    (
        "--budget-rollouts",
        _whole(0, 2_000),
        "N",
        "Run at most N rollouts, of whatever kind",
    ),
    (
        "--budget-train-rollouts",
        _whole(0, 1_000),
        "N",
        "Run at most N rollouts on train cases",
    ),
    ("--budget-iterations", _whole(0, 50), "N", "Run at most N iterations"),
    ("--budget-tokens", _whole(0, 1_000_000), "N", "Spend at most N tokens on models"),
    ("--budget-time", _duration, "TIME", "Stop after this time, like 45s, 90m or 2h"),
    ("--budget-usd", _amount, "USD", "Spend at most this much money on models"),
    ("--evo-artifact", _text, "DIR", "The directory that may change"),
    (
        "--evo-proposer",
        _text,
        "NAME",
        "What edits: search, llm, agent, scripted, package.module:name or FILE.py",
    ),
    (
        "--evo-model",
        _text,
        "MODEL",
        "The model of the llm proposer, by litellm's name",
    ),
    ("--evo-agent", _text, "AGENT", "The coding agent that proposes: name or command"),
    ("--evo-strategy", _text, "NAME", "The preset that combines the parts of the loop"),
    ("--evo-slots", _whole(1, 2), "K", "Iterations that run at the same time"),
    (
        "--evo-chain-depth",
        _whole(0, 5),
        "D",
        "How often a rejected candidate is refined",
    ),
    ("--evo-top-n", _whole(1, 3), "N", "Candidates that survive selection"),
    ("--evo-batch", _whole(1, 8), "B", "Train cases of one iteration"),
    ("--evo-repeats", _whole(1, 3), "R", "Rollouts of each case"),
    ("--evo-seed", _whole(0, 7), "S", "Where all random draws start"),
    ("--evo-timeout", _seconds, "SECONDS", "Kill a rollout that takes longer"),
    ("--evo-concurrency", _whole(1, 4), "N", "Rollouts in flight in one worker"),
    ("--evo-run-dir", _text, "DIR", "Where runs are kept"),
    ("--evo-reports", _text, "DIR", "Where reports for CI are written"),
    ("--evo-resume", _text, "RUN", "Go on with a run: its id, or last"),
    ("--evo-record", _text, "FILE", "Write what models are asked and answer to FILE"),
    (
        "--evo-replay",
        _text,
        "FILE",
        "Take what models answer from FILE: no key, no network",
    ),
    ("--evo-target", _text, "NAME", "The [[tool.pytest_evo.target]] to work on"),
    (
        "--evo-gate",
        _text,
        "BASE",
        "Fail if the artifact got worse than BASE: git:REF, baseline, or a file",
    ),
)

_CHOICES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("--evo-isolation", ISOLATIONS, "How rollouts are kept apart"),
    ("--evo-gate-policy", GATE_POLICIES, "How the gate treats an open question"),
    (
        "--evo-gate-arm",
        GATE_ARMS,
        "What of git:REF is compared: its artifact, or its whole tree",
    ),
)

_FLAGS: tuple[tuple[str, str], ...] = (
    ("--evolve", "Improve the artifact: propose, evaluate, select"),
    ("--evo-dry-run", "Say what a run would do and cost, and do nothing"),
    ("--evo-apply", "Write the best artifact into the working tree at the end"),
    ("--evo-require-gain", "Exit with 1 without a gain that is more than noise"),
    ("--evo-gate-all", "Run all cases, also those that the change cannot reach"),
    ("--evo-accept-removed", "Let cases go that used to pass"),
    ("--evo-baseline-update", "Write the gate's baseline from the artifact as it is"),
)


def add_options(parser: pytest.Parser) -> None:
    """Add every option of pytest-evo to one group."""
    group = parser.getgroup("evo", "pytest-evo: tests that improve what they judge")
    for flag, text in _FLAGS:
        group.addoption(flag, action="store_true", default=False, help=text)
    for option, kind, metavar, text in _VALUES:
        group.addoption(option, type=kind, metavar=metavar, default=None, help=text)
    for option, choices, text in _CHOICES:
        group.addoption(option, choices=choices, default=None, help=text)


def _destination(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


OPTIONS: tuple[str, ...] = (
    *(flag[0] for flag in _FLAGS),
    *(value[0] for value in _VALUES),
    *(choice[0] for choice in _CHOICES),
)
"""All options; each but ``--evolve`` is a setting's."""

_DESTINATIONS = tuple(_destination(name) for name in OPTIONS if name != "--evolve")


def looks_misspelt(arguments: Sequence[str]) -> bool:
    """Whether there may be an option that was meant for pytest-evo and does not exist.

    It may also be another plugin's, or a value.
    """
    return any(
        text.startswith(("--evo", "--budget")) and text.partition("=")[0] not in OPTIONS
        for text in arguments
    )


def option_overrides(config: pytest.Config) -> dict[str, object]:
    """What the command line says, keyed by setting; silent options are left out."""
    given: dict[str, object] = {}
    for name in _DESTINATIONS:
        value = config.getoption(name, None)
        if value is not None and value is not False:
            given[name.removeprefix("evo_")] = value
    return given


def idle_options(config: pytest.Config) -> list[str]:
    """Options that were given to a session which does nothing with them."""
    useful = {"artifact", "target"}  # a plain run reads the artifact too
    given = [name for name in option_overrides(config) if name not in useful]
    return [
        f"--{name if name.startswith('budget_') else f'evo_{name}'}".replace("_", "-")
        for name in given
    ]


def is_active(config: pytest.Config) -> bool:
    """Whether this session was asked for more than a plain run of the tests."""
    return asks_for_more(config.option)


def asks_for_more(options: argparse.Namespace) -> bool:
    """The same, of options that may be parsed only in part."""
    return any(getattr(options, name, None) for name in MODES)
