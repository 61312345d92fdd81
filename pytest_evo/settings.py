"""The settings: ``[tool.pytest_evo]`` and the command line, as one frozen value.

The names are those of the command line without ``--evo-`` and with ``_``. Paths are
relative to the rootdir. ``None`` means "computed", never "none".
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated
from typing import Any
from typing import Literal
from typing import Self

from pydantic import BaseModel
from pydantic import BeforeValidator
from pydantic import ConfigDict
from pydantic import Field
from pydantic import model_validator
from pydantic import StrictBool
from pydantic import ValidationError

from pytest_evo.errors import SettingsProblem
from pytest_evo.models import Kind
from pytest_evo.settings_agent import AGENT_TUNING
from pytest_evo.settings_agent import AgentSettings
from pytest_evo.settings_files import read_table
from pytest_evo.settings_files import TABLE
from pytest_evo.settings_model import ModelSettings
from pytest_evo.settings_model import TUNING
from pytest_evo.settings_text import Amount
from pytest_evo.settings_text import as_list
from pytest_evo.settings_text import as_tables
from pytest_evo.settings_text import Choice
from pytest_evo.settings_text import Count
from pytest_evo.settings_text import ErrorNames
from pytest_evo.settings_text import explain
from pytest_evo.settings_text import Number
from pytest_evo.settings_text import Positive
from pytest_evo.settings_text import Seconds
from pytest_evo.settings_text import short
from pytest_evo.settings_text import Text
from pytest_evo.settings_text import TextOrTexts
from pytest_evo.settings_text import Texts

ANSWER_PARAMS = (
    "answer",
    "answers",
    "expected",
    "gold",
    "golden",
    "label",
    "labels",
    "solution",
    "target",
    "truth",
    "want",
    "wanted",
)
"""Names of parameters, keys and attributes that hold expected answers."""

# -- the models --------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KnobSettings(_Strict):
    """One ``[[tool.pytest_evo.file.knob]]``: a value that ``search`` may turn."""

    key: Text = Field(examples=["bm25.k1"])
    type: Literal["float", "int", "bool", "choice"] = Field(examples=["float"])
    low: Amount | None = Field(default=None, examples=[0.4])
    high: Amount | None = Field(default=None, examples=[2.5])
    log: StrictBool = Field(default=False, examples=[True])
    step: Amount | None = Field(default=None, gt=0, examples=[0.1])
    choices: Annotated[tuple[Choice, ...], BeforeValidator(as_list)] = Field(
        default=(), examples=[["short", "long"]]
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        ranged = self.type in ("float", "int")
        limits = (self.low, self.high, self.step)
        if not ranged and (any(x is not None for x in limits) or self.log):
            raise ValueError(
                f"knob {self.key!r} has type {self.type!r}: remove low, high, log, step"
            )
        if (self.type == "choice") is not bool(self.choices):
            raise ValueError(
                f"knob {self.key!r}: type = 'choice' goes with choices = [...], "
                "no other type does"
            )
        if ranged:
            self._check_range()
        return self

    def _check_range(self) -> None:
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError(f"knob {self.key!r} needs low and high, low below high")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError(f"knob {self.key!r}: log needs low above 0 and no step")
        whole = all(
            x is None or float(x).is_integer() for x in (self.low, self.high, self.step)
        )
        if self.type == "int" and not whole:
            raise ValueError(
                f"knob {self.key!r} has type 'int': low, high, step must be whole"
            )


class FileSettings(_Strict):
    """One ``[[tool.pytest_evo.file]]``: what the files of one glob are for."""

    path: Text = Field(examples=["steps/*.py"])
    about: str = Field(default="", examples=["one function rank(query, index) each"])
    kind: Kind = Field(default=Kind.PROSE, examples=["script"])
    edit: StrictBool = Field(default=True, examples=[False])
    max_bytes: Positive | None = Field(default=None, examples=[20000])
    knob: Annotated[tuple[KnobSettings, ...], BeforeValidator(as_tables)] = ()

    @model_validator(mode="after")
    def _knobs_have_a_file(self) -> Self:
        if self.knob and not re.search(r"^[^*?\[]+\.(toml|ya?ml|json)$", self.path):
            raise ValueError(
                f"knobs need a path of one TOML, YAML or JSON file, not {self.path!r}"
            )
        if self.knob and not self.edit:
            raise ValueError(f"{self.path!r} has knobs and edit = false: remove one")
        return self


class TargetSettings(_Strict):
    """One ``[[tool.pytest_evo.target]]``: an artifact with the cases that judge it."""

    name: Text = Field(examples=["search"])
    artifact: Text = Field(examples=["pipeline"])
    cases: Texts = Field(default=(), examples=[["tests/evals/test_search.py"]])


class SplitSettings(_Strict):
    """``[tool.pytest_evo.split]``: globs of node ids, or shares of train, val, test."""

    train: Texts = Field(default=(), examples=[["tests/train/*"]])
    val: Texts = Field(default=(), examples=[["tests/val/*"]])
    test: Texts = Field(default=(), examples=[["tests/held_out/*"]])
    fractions: Annotated[tuple[Number, ...], BeforeValidator(as_list)] | None = Field(
        default=None, examples=[[0.4, 0.3, 0.3]]
    )

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        shares = self.fractions
        if shares is None:
            return self
        if len(shares) not in (2, 3) or any(share < 0 for share in shares):
            raise ValueError(
                "fractions needs two or three shares that are not negative (train, "
                "val, test), like fractions = [0.4, 0.3, 0.3]"
            )
        if abs(sum(shares) - 1) > 1e-6:
            raise ValueError(
                f"fractions add up to {sum(shares):g}, not to 1; write shares like "
                "fractions = [0.4, 0.3, 0.3]"
            )
        if shares[0] == 0 or shares[1] == 0:
            raise ValueError(
                "fractions of train and val must be above 0, like "
                "fractions = [0.4, 0.3, 0.3]"
            )
        return self


class LimitSettings(_Strict):
    """One ``[[tool.pytest_evo.limit]]``: how much more than the start may be used."""

    metric: Literal["tokens", "seconds", "usd", "bytes"] = Field(examples=["tokens"])
    max_ratio: Number = Field(gt=0, examples=[1.2])


class QuarantineSettings(_Strict):
    """One ``[[tool.pytest_evo.quarantine]]``: cases that the gate shows, not counts."""

    case: Text = Field(examples=["tests/evals/test_search.py::test_slow*"])
    reason: Text = Field(examples=["the provider changes its answers, issue 12"])
    until: date = Field(examples=["2027-01-31"])


class Settings(_Strict):
    """Everything a person can set, validated; times in seconds."""

    artifact: Text | None = Field(default=None, examples=["pipeline"])
    objective: str = Field(default="", examples=["Rank the right passage first."])
    include: Texts = Field(default=(), examples=[["prompts/**", "agent.yml"]])
    file: Annotated[tuple[FileSettings, ...], BeforeValidator(as_tables)] = ()
    max_bytes: Positive = Field(default=5_000_000, examples=[5_000_000])
    max_files: Positive = Field(default=4_000, examples=[4000])

    budget_rollouts: Count | None = Field(default=None, examples=[2000])
    budget_train_rollouts: Count | None = Field(default=None, examples=[1000])
    budget_iterations: Count | None = Field(default=None, examples=[50])
    budget_tokens: Count | None = Field(default=None, examples=[1_000_000])
    budget_time: Seconds | None = Field(default=None, examples=["90m"])
    budget_usd: Number | None = Field(default=None, ge=0, examples=[5])

    proposer: Text | None = Field(default=None, examples=["search"])
    model: Text | None = Field(default=None, examples=["openai/gpt-5-mini"])
    model_options: ModelSettings = ModelSettings()
    agent: Text | None = Field(default=None, examples=["claude"])
    agent_options: AgentSettings = AgentSettings()
    scripted: TextOrTexts | None = Field(default=None, examples=["proposals.py"])
    strategy: Text = Field(default="mara", examples=["mara"])
    slots: Positive | None = Field(default=None, examples=[2])
    chain_depth: Count | None = Field(default=None, examples=[5])
    top_n: Positive | None = Field(default=None, examples=[3])
    batch: Positive | None = Field(default=None, examples=[8])
    repeats: Positive | None = Field(default=None, examples=[3])
    seed: Count = Field(default=0, examples=[7])
    acceptance: Text = Field(default="paired", examples=["paired"])
    parents: Text = Field(default="lead-count", examples=["lead-count"])
    batches: Text = Field(default="guards", examples=["guards"])
    refiner: Text = Field(default="chain", examples=["chain"])
    validation: Text = Field(default="staged", examples=["staged"])
    survivors: Text = Field(default="pareto-top-n", examples=["pareto-top-n"])
    diagnoser: Text | None = Field(default=None, examples=["mara"])
    diagnosis_model: Text | None = Field(default=None, examples=["openai/gpt-5-nano"])
    diagnosis_options: ModelSettings | None = None
    diagnosis_prompts: Text | None = Field(default=None, examples=["evals/diagnosis"])
    train_answers: Literal["hidden", "shown"] = Field(
        default="hidden", examples=["shown"]
    )
    answer_params: Texts = Field(default=ANSWER_PARAMS, examples=[["expected"]])
    count_model_calls: StrictBool = Field(default=True, examples=[False])
    noise: Literal["auto", "none", "repeats"] = Field(default="auto", examples=["auto"])

    isolation: Literal["auto", "fork", "fresh", "workspace"] = Field(
        default="auto", examples=["auto"]
    )
    mount: Literal["auto", "never"] = Field(default="auto", examples=["never"])
    timeout: Seconds | None = Field(default=None, gt=0, examples=[60])
    concurrency: Positive = Field(default=1, examples=[4])
    env_allow: Texts | None = Field(default=None, examples=[["PATH", "HOME"]])
    protect: Texts = Field(default=(), examples=[["tests/data/**"]])
    writable: Texts = Field(default=(), examples=[["tests/generated/*.py"]])
    warm_fixtures: Texts = Field(default=(), examples=[["index"]])
    skip_cassette_check: StrictBool = Field(default=False, examples=[True])

    run_dir: Text = Field(default=".evo", examples=[".evo"])
    reports: Text = Field(default="evo-reports", examples=["evo-reports"])
    junit_candidates: Literal["failures", "skipped"] = Field(
        default="failures", examples=["skipped"]
    )
    resume: Text | None = Field(default=None, examples=["last"])
    record: Text | None = Field(default=None, examples=["evals/run.jsonl"])
    replay: Text | None = Field(default=None, examples=["evals/run.jsonl"])
    dry_run: StrictBool = Field(default=False, examples=[True])
    apply: StrictBool = Field(default=False, examples=[True])
    require_gain: StrictBool = Field(default=False, examples=[True])

    gate: Text | None = Field(default=None, examples=["git:origin/main"])
    gate_policy: Literal["default", "strict"] = Field(
        default="default", examples=["strict"]
    )
    gate_arm: Literal["artifact", "tree"] = Field(default="artifact", examples=["tree"])
    gate_all: StrictBool = Field(default=False, examples=[True])
    gate_margin: Number | None = Field(default=None, ge=0, lt=1, examples=[0.02])
    gate_tolerance: Number | None = Field(default=None, ge=0, lt=1, examples=[0.1])
    gate_max_errors: Number | None = Field(default=None, ge=0, le=1, examples=[0.05])
    accept_removed: StrictBool = Field(default=False, examples=[True])
    baseline_update: StrictBool = Field(default=False, examples=[True])
    baseline_file: Text = Field(
        default="evo-baseline.json", examples=["evo-baseline.json"]
    )
    quarantine: Annotated[
        tuple[QuarantineSettings, ...], BeforeValidator(as_tables)
    ] = ()

    target: Text | None = Field(default=None, examples=["search"])
    targets: Annotated[tuple[TargetSettings, ...], BeforeValidator(as_tables)] = ()
    cases: Texts = Field(default=(), examples=[["tests/evals/*"]])
    split: SplitSettings = SplitSettings()
    infrastructure: ErrorNames = Field(default=(), examples=[["httpx.ConnectError"]])
    score_from: Text | None = Field(default=None, examples=["ndcg@10"])
    fingerprint_env: Texts = Field(default=(), examples=[["JUDGE_MODEL"]])
    limit: Annotated[tuple[LimitSettings, ...], BeforeValidator(as_tables)] = ()

    def digest(self) -> str:
        """Sha256 of the settings that decide what a run finds.

        Budgets, folders, reporting and what happens after the run are left out, so
        that a run can be resumed with more budget or into other folders.
        """
        left_out: dict[str, Any] = {
            **dict.fromkeys(_NOT_IN_DIGEST, True),
            "model_options": set(TUNING),
            "agent_options": set(AGENT_TUNING),
            "diagnosis_options": set(TUNING),
        }
        kept = self.model_dump(mode="json", exclude=left_out)
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


BUDGETS = tuple(name for name in Settings.model_fields if name.startswith("budget_"))
"""The settings that limit what a run may use."""

_NOT_IN_DIGEST = frozenset(BUDGETS) | {
    "accept_removed",
    "apply",
    "baseline_file",
    "baseline_update",
    "concurrency",
    "dry_run",
    "gate",
    "gate_all",
    "gate_arm",
    "gate_margin",
    "gate_max_errors",
    "gate_policy",
    "gate_tolerance",
    "junit_candidates",
    "quarantine",
    "record",
    "replay",
    "reports",
    "require_gain",
    "resume",
    "run_dir",
    "targets",
}


# -- loading -----------------------------------------------------------------------


def load_settings(rootdir: Path, overrides: Mapping[str, object]) -> Settings:
    """Read the settings of a project.

    Args:
        rootdir: pytest's rootdir; ``pyproject.toml`` or ``pytest_evo.toml`` is there.
        overrides: what the command line says, by setting; None where it is silent.

    Raises:
        SettingsProblem: a file or a value that cannot be used, all of them at once.
    """
    source, table = read_table(rootdir)
    given = {name: value for name, value in overrides.items() if value is not None}
    wanted = dict(table)
    if "targets" in wanted:
        raise SettingsProblem(f"{source}: unknown key 'targets'. Write 'target'.")
    if isinstance(wanted.get("target"), list):
        wanted["targets"] = wanted.pop("target")
    elif "target" in wanted:
        raise SettingsProblem(
            f"{source}: target is {short(wanted['target'])}, but it declares targets. "
            f"Write a [[{TABLE}.target]] table with name, artifact and cases, and "
            "choose one with --evo-target=NAME."
        )
    wanted.update(given)
    context = {"overrides": frozenset(given)}
    try:
        settings = Settings.model_validate(wanted, context=context)
    except ValidationError as error:
        lines = [explain(detail, Settings, source, given) for detail in error.errors()]
        raise SettingsProblem("\n".join(dict.fromkeys(lines))) from None
    return _with_target(settings, source, given)


def _with_target(
    settings: Settings, source: str, given: Mapping[str, object]
) -> Settings:
    names = [target.name for target in settings.targets]
    if len(set(names)) < len(names):
        raise SettingsProblem(
            f"{source}: two targets have the same name ({', '.join(names)}). "
            "Give each [[target]] a name of its own."
        )
    if settings.target is None:
        return settings
    if settings.target not in names:
        close = difflib.get_close_matches(settings.target, names, 1)
        known = ", ".join(names) or "none"
        raise SettingsProblem(
            f"--evo-target={settings.target}: no such target in {source} "
            f"(declared: {known}). Type --evo-target={(close or names or ['NAME'])[0]}"
            f" after declaring it with [[{TABLE}.target]]."
        )
    chosen = settings.targets[names.index(settings.target)]
    update: dict[str, object] = {}
    if "artifact" not in given:
        update["artifact"] = chosen.artifact
    if chosen.cases and "cases" not in given:
        update["cases"] = chosen.cases
    return settings.model_copy(update=update)
