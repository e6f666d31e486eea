"""Damaged Arrow and Parquet data sets: each is refused in one line that names it, or read as something valid."""

import pytest

from support.arrow_fuzzing import TARGETS, campaign
from support.fuzzing import attack


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_data_set_is_refused_by_name_or_read(name, tmp_path):
    place = tmp_path / "valid"
    place.mkdir()
    valid = TARGETS[name].make(place)
    outcomes = {attack(TARGETS[name], valid, tmp_path, seed)[1] for seed in range(100)}
    assert outcomes == {True, False}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_thousands_of_damaged_data_sets_are_refused_or_read_and_kill_no_process(name):
    outcomes = campaign(name, 1000, 1500)
    assert set(outcomes) == {"valid", "refused"}, outcomes
