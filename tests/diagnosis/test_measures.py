"""What single measures compute, and what a diagnosis says where something is missing."""

import json

import numpy as np
import planted_cases
import pytest

import understudy as us
from understudy.cli.main import run_command
from understudy.core.errors import RunError, UnderstudyError
from understudy.diagnosis.advice import Facts, choose
from understudy.diagnosis.alike import steps_of
from understudy.diagnosis.ambiguity import nugget, two_modes
from understudy.diagnosis.copies import repeated
from understudy.diagnosis.coverage import energy_test
from understudy.diagnosis.hygiene import control_period
from understudy.diagnosis.leaks import leaked
from understudy.diagnosis.measures import plain
from understudy.diagnosis.remedies import REMEDIES


def expert(rng, kind, episodes=20, steps=40):
    policies = {
        "deterministic": planted_cases.steer,
        "noisy": lambda s: planted_cases.steer(s) + 0.2 * rng.normal(size=2),
        "two ways": lambda s: np.array([rng.choice([-1.0, 1.0]), 0.0]),
    }
    demos = planted_cases.line_world(rng, policies[kind], episodes, steps)
    return steps_of(demos.action_space, demos.observations, demos.actions, demos.lengths)


def test_a_deterministic_expert_has_no_nugget_and_a_noisy_one_has():
    rng = np.random.default_rng(0)
    assert nugget(expert(rng, "deterministic"), rng)["nugget"] < 0.02
    assert nugget(expert(rng, "noisy"), rng)["nugget"] > 0.05


def test_noise_has_one_mode_and_a_choice_has_two():
    rng = np.random.default_rng(1)
    assert two_modes(expert(rng, "two ways"), rng).two > 0.8
    assert two_modes(expert(rng, "noisy"), rng).two < 0.35


def test_the_energy_test_keeps_its_level_and_sees_a_shift():
    rng = np.random.default_rng(2)
    same = [energy_test(rng.normal(size=(10, 3)), rng.normal(size=(20, 3)), rng)[1] for _ in range(200)]
    assert np.mean(np.array(same) <= 0.05) < 0.12
    assert energy_test(rng.normal(size=(10, 3)) + 3, rng.normal(size=(20, 3)), rng)[1] < 0.01


def test_repeats_leaks_and_held_actions_are_counted():
    demos = us.load("Pendulum", episodes=4)
    assert repeated(demos) == 0
    assert control_period(demos)[0] == 1
    assert leaked(demos)[0] < 0.9
    held = planted_cases.remade(demos, actions=np.repeat(demos.actions[::4], 4, axis=0))
    assert control_period(held)[0] == 4
    seen = np.concatenate([demos.observations, -demos.actions], axis=1)
    assert leaked(planted_cases.remade(demos, observations=seen, next_observations=None)) == (pytest.approx(1.0), 3)


def test_an_episode_at_rest_does_not_hold_its_observations():
    rng = np.random.default_rng(8)
    resting = np.concatenate([rng.normal(size=(10, 2)), np.zeros((30, 2))])
    held = np.repeat(rng.normal(size=(10, 2)), 4, axis=0)
    act = rng.normal(size=(40, 1))
    assert control_period(us.Demonstrations.from_arrays(resting, act, [40]))[1] == 0
    assert control_period(us.Demonstrations.from_arrays(held, act, [40]))[1] > 0.6


def test_three_demonstrations_predict_each_other():
    demos = planted_cases.line_world(np.random.default_rng(9), planted_cases.steer, 3)
    found = us.diagnose(demos)["data"]
    assert found.numbers["counts"] == [3]
    assert found.numbers["unseen_from"] == "each episode, from the others"
    assert 0 < found.value < 0.5


def test_numbers_that_are_not_finite_become_none_in_json():
    assert plain({"a": np.float64("nan"), "b": [1.0, float("inf")], "c": np.arange(2)}) == {
        "a": None,
        "b": [1.0, None],
        "c": [0, 1],
    }


def test_one_episode_without_environment_names_what_is_missing():
    found = us.diagnose(planted_cases.line_world(np.random.default_rng(3), planted_cases.steer, 1))
    assert {"environment", "data", "coverage", "recoverability", "optimisation"} <= set(found.missing)
    assert {"ambiguity", "hygiene", "survival"} <= {measure.name for measure in found.measures}
    assert all(0 <= cause.likelihood <= 1 for cause in found.causes)


def test_an_environment_of_another_task_is_named_and_the_rest_is_done():
    demos = planted_cases.line_world(np.random.default_rng(4), planted_cases.steer, 6)
    learned = us.imitate(us.bc(rounds=1, gradient_steps=5, hidden=(8,)), demos, progress=False)
    found = us.diagnose(learned, env="Pendulum", demonstrations=demos)
    assert "observations" in found.missing["environment"]
    assert "hygiene" in {measure.name for measure in found.measures}


def test_what_cannot_be_diagnosed_is_named():
    with pytest.raises(UnderstudyError, match="cannot be diagnosed"):
        us.diagnose(3)
    with pytest.raises(UnderstudyError, match="episodes"):
        us.diagnose(us.load("Pendulum", episodes=2), episodes=0)


def test_the_command_writes_a_page_and_json_and_replaces_only_its_own(tmp_path, capsys):
    out = tmp_path / "diagnosis"
    assert run_command(["diagnose", "Forest", "--episodes", "3", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) <= 11
    assert "ambiguous-expert" in lines[1]
    stored = json.loads((out / "diagnosis.json").read_text())
    assert stored["causes"][0]["name"] == "ambiguous-expert"
    page = (out / "diagnosis.html").read_text()
    assert page.count("<svg") >= 3
    assert "http" not in page.replace("http-equiv", "")
    with pytest.raises(RunError):
        run_command(["diagnose", "Forest", "--episodes", "3", "--out", str(out)])
    (out / "mine.txt").write_text("mine")
    with pytest.raises(RunError):
        run_command(["diagnose", "Forest", "--episodes", "3", "--out", str(out), "--replace"])
    assert (out / "mine.txt").read_text() == "mine"


def test_every_cause_has_a_remedy():
    from typing import get_args

    from understudy.diagnosis.measures import CauseName

    assert set(get_args(CauseName)) == set(REMEDIES)


@pytest.mark.parametrize(
    ("changes", "algorithm"),
    [
        ({}, "bc"),
        ({"horizon": 1000, "demonstrations": 20}, "advil"),
        ({"environment": True}, "adril"),
        ({"environment": True, "continuous": False, "clone_error": 0.01}, "bc"),
        ({"environment": True, "continuous": False}, "gail"),
        ({"environment": True, "expert": True, "h": 3.0}, "dagger"),
        ({"environment": True, "expert": True, "h": 200.0}, "adril"),
        ({"ambiguous": True}, "bc"),
        ({"ambiguous": True, "environment": True}, "adril"),
        ({"ambiguous": True, "environment": True, "continuous": False}, "gail"),
        ({"ambiguous": True, "environment": True, "continuous": False, "clone_error": 0.01}, "bc"),
        ({"ambiguous": True, "environment": True, "continuous": False, "expert": True, "h": 3.0}, "dagger"),
        ({"ambiguous": True, "environment": True, "expert": True}, "daequil"),
        ({"ambiguous": True, "environment": True, "expert": True, "jax": True}, "aggrevate"),
    ],
)
def test_the_rules_of_advice(changes, algorithm):
    base = {"demonstrations": 5, "horizon": 200, "continuous": True, "ambiguous": False}
    assert (
        choose(
            Facts(
                **{
                    **base,
                    "environment": False,
                    "expert": False,
                    "jax": False,
                    "clone_error": 0.3,
                    "h": 200.0,
                    **changes,
                }
            )
        )[0]
        == algorithm
    )


def test_a_clone_of_an_expert_with_two_actions_in_a_state_is_a_mixture():
    found = us.advise(us.load("Forest"))
    assert found.facts.ambiguous
    assert found.command == "understudy train bc --demos FILE --preset mixture"


def test_advice_names_bounds_costs_and_a_command():
    found = us.advise("Pendulum", "Pendulum", "scripted")
    assert found.algorithm == "dagger"
    assert found.command == "understudy train dagger --demos Pendulum --env Pendulum --expert scripted"
    assert [row[0] for row in found.rows] == ["off-Q", "reward", "on-Q"]
    assert all("min" in row[4] for row in found.rows)
