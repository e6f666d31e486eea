"""An expert that answers some of a round's states: only its answers count, and it recalls rounds."""

import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.base import Request
from understudy.collect.host import HostCollector
from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.experts.expert import Expert
from understudy.experts.respondent import Answers, AskedRound, Respondent
from understudy.game import Algorithm

QUICK = {"rounds": 3, "gradient_steps": 5, "episodes_per_round": 2, "hidden": (8,)}


class Some(Respondent):
    """Answers a few rows with a constant, and remembers what it was asked."""

    def __init__(self, rows: list[int], recalled: dict[int, AskedRound] | None = None):
        self.rows, self.asked, self.recalled = rows, list[AskedRound](), recalled or {}

    def recall(self, index: int) -> AskedRound | None:
        return self.recalled.get(index)

    def answer(self, asked: AskedRound, most: int) -> Answers:
        self.asked.append(asked)
        rows = np.array(self.rows[:most], int)
        return Answers(rows, np.full((len(rows), 1), 0.5, np.float32))


def train(expert: Expert | Respondent, algorithm: Algorithm | None = None, env: object = "Pendulum") -> us.Result:
    return us.imitate(
        us.dagger(**QUICK) if algorithm is None else algorithm,
        us.load("Pendulum", episodes=2),
        env,
        expert,
        seeds=[3],
        progress=False,
        workers=0,
    )


def test_only_answers_are_counted() -> None:
    person = Some([3, 200, 17])
    result = train(person)
    assert result.metrics["queries"][0].tolist() == [0, 3, 6]
    assert [asked.round for asked in person.asked] == [1, 2]
    assert len(person.asked[0].steps.t) == 400
    assert person.asked[0].lengths.tolist() == [200, 200]


def test_the_budget_is_for_answers() -> None:
    person = Some([5, 6, 7])
    result = train(Expert(person).budget(4))
    assert result.metrics["queries"][0].tolist() == [0, 3, 4]


def test_answered_states_come_first() -> None:
    env, person = us.Pendulum(), Some([300, 7])
    collector = HostCollector(env, Expert(person), [0])
    algorithm = us.dagger(**QUICK)
    policy = env.expert()
    request = Request(algorithm, lambda: None, lambda: policy, 1, 0, lambda: np.zeros(1), lambda: np.ones(1, bool))
    collected = collector.gather(request)
    asked = person.asked[0]
    assert collected.answered[0].sum() == 2
    np.testing.assert_array_equal(collected.rollouts.steps.obs[0, :2], np.asarray(asked.steps.obs)[[300, 7]])
    np.testing.assert_array_equal(collected.expert_actions[0, :2], [[0.5], [0.5]])
    assert int(collected.rollouts.size[0]) == 400
    rest = np.sort(collected.rollouts.steps.obs[0, 2:400], axis=0)
    np.testing.assert_array_equal(rest, np.sort(np.delete(np.asarray(asked.steps.obs), [300, 7], axis=0), axis=0))


def test_an_expert_that_answers_nothing_trains_on_the_demonstrations() -> None:
    assert np.isfinite(train(Some([])).metrics["loss"]).all()
    linear = us.daequil(**QUICK, critic="linear")
    assert np.isfinite(train(Some([]), linear).metrics["loss"]).all()


def test_a_recalled_round_is_not_collected_again() -> None:
    first = Some([1, 2, 3])
    result = train(first)
    second = Some([1, 2, 3], {asked.round: asked for asked in first.asked})
    again = train(second)
    assert all(one is other for one, other in zip(second.asked, first.asked, strict=True))
    obs = np.array([[1.0, 0.0, 0.3]], np.float32)
    np.testing.assert_allclose(again.policy(obs), result.policy(obs), rtol=1e-5)


def test_a_recalled_round_must_fit() -> None:
    first = Some([1])
    train(first, us.dagger(**{**QUICK, "episodes_per_round": 4}))
    with pytest.raises(SettingError, match="episodes_per_round"):
        train(Some([1], {1: first.asked[0]}))


def test_a_gate_chooses_the_candidates_and_the_learner_acts() -> None:
    class Early(type(us.dagger())):
        def start_gate(self, state, index, key):  # type: ignore[no-untyped-def]
            return jnp.zeros((), jnp.int32)

        @property
        def gated(self) -> bool:
            return True

        def gate(self, state, carry, obs, act, key):  # type: ignore[no-untyped-def]
            return carry + 1, carry < 3, carry < 2

    person = Some([0])
    train(person, Early(**QUICK))
    asked = person.asked[0]
    assert asked.gated
    assert asked.candidates.tolist() == [0, 200, 1, 201, 2, 202]


@pytest.mark.parametrize("rows", [[0, 0], [400], [-1]])
def test_answers_to_other_rows_are_refused(rows: list[int]) -> None:
    with pytest.raises(SpecError, match="not asked about"):
        train(Some(rows))


def test_a_respondent_answers_for_one_run() -> None:
    with pytest.raises(SettingError, match="single seed"):
        us.imitate(us.dagger(**QUICK), us.load("Pendulum", episodes=2), "Pendulum", Some([]), seeds=2, progress=False)


def test_a_respondent_gives_no_action_values() -> None:
    with pytest.raises(NeedsError, match="action values"):
        train(Some([]), us.aggrevate(rounds=2, gradient_steps=5, episodes_per_round=2, hidden=(8,)))


def test_visit_may_end_training() -> None:
    seen: list[int] = []

    def visit(number: int, states: object) -> bool:
        seen.append(number)
        return number == 2

    result = us.imitate(
        us.bc(rounds=5, gradient_steps=2, hidden=(8,)), us.load("Pendulum", episodes=2), progress=False, visit=visit
    )
    assert seen == [1, 2]
    assert result.interrupted


def test_a_round_is_reported_before_it_is_visited() -> None:
    order: list[tuple[str, int]] = []

    def progress(done: int, total: int, metrics: dict[str, float]) -> None:
        order.append(("progress", done))

    us.imitate(
        us.dagger(**QUICK),
        us.load("Pendulum", episodes=2),
        "Pendulum",
        Some([1]),
        progress=progress,
        workers=0,
        visit=lambda number, states: order.append(("visit", number)),
    )
    assert order == [(kind, number) for number in (1, 2, 3) for kind in ("progress", "visit")]
