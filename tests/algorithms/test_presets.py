"""Presets: their names, and settings that differ from them."""

import dataclasses

import pytest

import understudy as us
from understudy.core.errors import UnknownNameError

TABLE_11 = {
    "policy_lr": 8e-6,
    "critic_lr": 8e-4,
    "batch_size": 1024,
    "gradient_target": 0.4,
    "gradient_weight": 10,
    "orthogonal_weight": 1e-4,
    "cloning_weight": 0.2,
    "clip": 40,
}


def test_advils_paper_preset_is_table_11():
    assert {name: getattr(us.advil.preset("paper", rounds=7), name) for name in TABLE_11} == TABLE_11


def test_changed_settings_are_a_custom_preset():
    changed = us.advil.preset("paper", rounds=7, policy_lr=1e-3)
    assert (changed.rounds, changed.policy_lr, changed.batch_size) == (7, 1e-3, 1024)
    assert changed.preset_name == "custom"
    assert us.advil.preset("paper", rounds=7).preset_name == "custom"


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [(algorithm, name) for algorithm in us.ALGORITHMS.values() for name in ("default", *algorithm.presets)],
)
def test_presets_know_their_name(algorithm, name):
    assert algorithm.preset(name).preset_name == name


SIZES = {
    *("rounds", "gradient_steps", "critic_steps", "clone_steps", "episodes_per_round", "round_steps", "batch_size"),
    *("hidden", "critic_hidden", "discriminator_hidden", "ensemble_size"),
}


def differences(one, other):
    """Names of the settings, also of players, in which two algorithms differ."""
    names = set()
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(mine) and type(mine) is type(theirs):
            names |= differences(mine, theirs)
        elif mine != theirs:
            names.add(field.name)
    return names


@pytest.mark.parametrize("algorithm", us.ALGORITHMS.values())
def test_the_quick_preset_is_another_preset_with_other_sizes(algorithm):
    quick = algorithm.preset("quick")
    others = [algorithm.preset(name) for name in ("default", *algorithm.presets) if name != "quick"]
    assert any(differences(quick, other) <= SIZES for other in others)
    assert quick.rounds <= min(other.rounds for other in others)


def test_an_unknown_preset_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"advil 'papper'.*'paper'"):
        us.advil.preset("papper")
    with pytest.raises(UnknownNameError, match=r"Presets: default, .*quick"):
        us.bc.preset("fast")
