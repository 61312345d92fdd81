from __future__ import annotations

import pytest

from pytest_evo.engine.acceptance import Paired
from pytest_evo.engine.acceptance import SumDelta
from pytest_evo.engine.refining import Tree
from pytest_evo.engine.sampling import Epoch
from pytest_evo.engine.sampling import Guards
from pytest_evo.engine.sampling import HighVariance
from pytest_evo.engine.sampling import Incumbent
from pytest_evo.engine.sampling import LeadCount
from pytest_evo.engine.sampling import ParetoFrequency
from pytest_evo.engine.validation import Full
from pytest_evo.errors import SettingsProblem
from pytest_evo.settings import Settings
from pytest_evo.strategies.presets import make_strategy
from pytest_evo.strategies.presets import with_preset


def test_mara_is_the_default_with_guards_and_a_paired_test() -> None:
    strategy = make_strategy(with_preset(Settings()), 3)
    assert isinstance(strategy.batches, Guards)
    assert isinstance(strategy.acceptance, Paired)


def test_paper_preset_sets_the_published_values() -> None:
    settings = with_preset(Settings(strategy="mara-paper"))
    numbers = (settings.slots, settings.chain_depth, settings.top_n, settings.batch)
    assert numbers == (1, 5, 3, 4)
    strategy = make_strategy(settings, 3)
    assert isinstance(strategy.batches, Epoch)
    assert isinstance(strategy.acceptance, SumDelta)
    assert isinstance(strategy.validation, Full)


def test_value_given_by_hand_wins_over_the_preset() -> None:
    settings = with_preset(
        Settings(strategy="mara-paper", batch=9, acceptance="paired", refiner="tree")
    )
    assert settings.batch == 9
    strategy = make_strategy(settings, 3)
    assert isinstance(strategy.acceptance, Paired)
    assert isinstance(strategy.refiner, Tree)


@pytest.mark.parametrize(
    ("kind", "name", "made"),
    [
        ("parents", "lead-count", LeadCount),
        ("parents", "pareto-frequency", ParetoFrequency),
        ("parents", "incumbent", Incumbent),
        ("batches", "guards", Guards),
        ("batches", "epoch", Epoch),
        ("batches", "high-variance", HighVariance),
    ],
)
def test_part_is_found_by_its_short_name(kind: str, name: str, made: type) -> None:
    settings = with_preset(Settings.model_validate({kind: name}))
    assert type(getattr(make_strategy(settings, 3), kind)) is made


def test_part_is_found_by_its_dotted_name() -> None:
    settings = Settings(refiner="pytest_evo.engine.refining:Tree")
    assert isinstance(make_strategy(settings, 3).refiner, Tree)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"acceptance": "pared"}, "Did you mean 'paired'"),
        ({"refiner": "no.such.module:x"}, "cannot be imported"),
        ({"survivors": "pytest_evo.engine.population:Nobody"}, "cannot be imported"),
    ],
)
def test_unknown_part_is_refused_with_the_nearest_name(
    update: dict[str, str], expected: str
) -> None:
    with pytest.raises(SettingsProblem, match=expected):
        make_strategy(Settings(**update), 3)


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(SettingsProblem, match="Did you mean 'mara'"):
        with_preset(Settings(strategy="mar"))
