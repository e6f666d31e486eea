"""Damaged directories of studies: a named error, or correct behaviour with a warning; sound cells are never touched."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.study_fuzzing import attack_study, make_studies

pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_studies(tmp_path_factory.mktemp("templates"))


@settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=702085)  # a folder in place of the error of a group
def test_a_damaged_study_is_refused_by_name_or_goes_on(templates: list[Path], seed: int) -> None:
    attack_study(templates, templates[0].parent, seed)


@pytest.mark.slow
def test_hundreds_of_damaged_studies_are_refused_by_name_or_go_on(templates: list[Path]) -> None:
    outcomes = {attack_study(templates, templates[0].parent, seed)[1] for seed in range(400)}
    assert outcomes >= {"refused", "warned", "went on"}
