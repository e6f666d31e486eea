"""How rules weigh evidence: what proves a defect comes before what it makes look bad."""

import numpy as np
import pytest

from understudy.diagnosis import defects, failures
from understudy.diagnosis.causes import rank
from understudy.diagnosis.evidence import Numbers
from understudy.diagnosis.measures import Measure

SURVIVAL = {
    "horizon": 100,
    "longest": 100,
    "demonstrated_length": 90.0,
    "horizon_known": True,
    "same_length": False,
    "terminal": 1.0,
    "early": 0.5,
    "unmarked": 0.0,
    "varied": 0.5,
    "alike_ends": 0.0,
    "limit": {"at": 10, "share": 0.5, "expected": 0.0, "limit": 100},
    "ends": 0.5,
    "beyond": {"lasting": 1.0, "terminal": 0.0},
}
HYGIENE = {
    "leak": 1.0,
    "leak_column": 0,
    "whole_numbers": True,
    "leak_of_expert": None,
    "episodes": 20,
    "repeated": 0.9,
}
READING = {"reading": "", "error": 1.0, "plain": 1.0, "own": 1.0, "floor": 1.0, "gain": 0.0, "explained": 0.0, "t": 0.0}
RECORDING = {
    **dict.fromkeys(("scale", "rate", "columns"), READING),
    "as_recorded": 0.5,
    "worst_column": [0.9, 0.01],
    "column_floor": [0.01, 0.01],
    "start": {"z": [0.0, 0.0]},
    "lengths": 1.0,
}


def measure(name, value=0.0, **numbers):
    return Measure(name, name, value, "", 0.0, "", True, name, numbers)


def numbers(**named):
    return Numbers([measure(name, **values) for name, values in named.items()])


def test_terminals_at_a_limit_that_fresh_episodes_pass_prove_a_time_limit():
    assert defects.limit_as_terminal(numbers(survival=SURVIVAL))[0] == defects.EXACT
    real = {**SURVIVAL, "beyond": {"lasting": 1.0, "terminal": 1.0}}
    assert defects.limit_as_terminal(numbers(survival=real))[0] < 0.2


def test_episodes_that_end_at_any_time_without_a_terminal_miss_it():
    missing = {**SURVIVAL, "terminal": 0.0, "early": 1.0, "unmarked": 1.0, "ends": 0.0}
    assert defects.missing_terminals(numbers(survival=missing))[0] > 0.8
    cut = {**missing, "varied": 0.0}
    assert defects.missing_terminals(numbers(survival=cut))[0] < 0.3


def test_a_column_that_is_the_action_leaks_unless_the_environment_explains_it():
    assert defects.leaked(numbers(hygiene=HYGIENE, recording=RECORDING))[0] == defects.EXACT
    explained = {**RECORDING, "worst_column": [0.01, 0.01]}
    assert defects.leaked(numbers(hygiene=HYGIENE, recording=explained))[0] < 0.3
    copied = {**HYGIENE, "leak_of_expert": 1.0}
    assert defects.leaked(numbers(hygiene=copied, recording=RECORDING))[0] < 0.1


@pytest.mark.parametrize(("share", "likely"), [(0.9, False), (0.0, True)])
def test_copies_count_as_far_as_the_environment_does_not_repeat(share, likely):
    found = defects.repeated(numbers(hygiene={**HYGIENE, "repeats_in_env": share}))[0]
    assert (found > 0.9) == likely


def test_units_of_one_action_are_told_by_the_experts_answers():
    lines = [
        {"scale": 1.0, "offset": 0.0, "off": 0.0, "left": 0.0},
        {"scale": 0.1, "offset": 0.0, "off": 0.8, "left": 0},
    ]
    likely, text = defects.scale(numbers(recording={**RECORDING, "expert": {"units": lines}}))
    assert likely > 0.9
    assert "column 1" in text


def test_without_returns_a_policy_fails_that_lasts_much_longer():
    alike = numbers(survival={"learner_length": 95.0, "demonstrated_length": 90.0}, coverage={"value": 0.0})
    longer = numbers(survival={"learner_length": 500.0, "demonstrated_length": 90.0}, coverage={"value": 0.0})
    assert alike.failing == pytest.approx(0.3)
    assert longer.failing == pytest.approx(0.95)
    assert numbers().failing == 0.75


def test_a_policy_of_a_search_that_returns_far_more_makes_the_expert_poor():
    returns = {"share": None, "demonstrations": 1.0, "searched": 10.0, "random": 0.0, "p_worse_than_searched": 1e-6}
    poor = numbers(demonstrators={"returns": {**returns, "searched_share": 0.1}})
    fine = numbers(demonstrators={"returns": {**returns, "searched_share": 0.8}})
    assert failures.poor_expert(poor)[0] > 0.9
    assert failures.poor_expert(fine)[0] == 0


def test_a_sure_defect_explains_its_consequences_away():
    bad = measure("performance", 0.0, significant=True, learner=0.0, expert=1.0, random=0.0)
    apart = measure("compounding", 10.0, demonstrated=0.01)
    leaves = measure("coverage", 1.0, departure=3, at_start=0.5)
    defect = measure("hygiene", **{**HYGIENE, "repeated": 0.0})
    context = dict.fromkeys(("env", "demos", "run", "expert", "algorithm", "rounds", "needed"))
    alone = {cause.name: cause.likelihood for cause in rank([bad, apart, leaves], context)}
    both = {
        cause.name: cause.likelihood
        for cause in rank([bad, apart, leaves, defect, measure("recording", **RECORDING)], context)
    }
    assert alone["compounding-errors"] > 0.8
    assert both["leaked-action"] > 0.9
    assert both["compounding-errors"] == pytest.approx(0.6 * alone["compounding-errors"])
    assert np.isclose(both["none"], 1 - both["leaked-action"])
