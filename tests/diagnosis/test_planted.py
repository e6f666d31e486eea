"""Planted cases: the right cause comes first. The slow ones train policies."""

import warnings

import planted_cases
import pytest

import understudy as us

QUICK = (
    *("pendulum_demonstrations", "forest_demonstrations", "pendulum_episodes_twice", "pendulum_swapped"),
    *("line_world_with_the_action_in_view", "pendulum_marked_terminal", "pendulum_actions_in_half_ranges"),
)


def cases() -> list:
    return [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow, id=name) for name in planted_cases.CASES
    ]


def test_there_are_at_least_twenty_cases_and_several_healthy_ones():
    wanted = [causes for causes, _ in planted_cases.CASES.values()]
    assert len(wanted) >= 20
    assert sum(causes == ("none",) for causes in wanted) >= 5


@pytest.mark.parametrize("name", cases())
def test_the_planted_cause_is_first(name):
    causes, make = planted_cases.CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, options = make()
        found = us.diagnose(given, **options)
    first = [cause.name for cause in found.causes if cause.likelihood == found.causes[0].likelihood]
    assert set(first) & set(causes), [(cause.name, cause.likelihood, cause.evidence) for cause in found.causes]
