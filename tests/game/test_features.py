"""Moment functions of users: what they must be, and how mistakes are reported."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SettingError
from understudy.core.types import Continuous, Dataset, Discrete, Spec, padded_with
from understudy.game.critics import LinearCritic, MLPCritic, TimedCritic
from understudy.game.features import evaluate, gradient_not_finite, not_finite, width_of
from understudy.game.sampling import only_where

SPEC = Spec((3,), Continuous((-1.0,), (1.0,)), 10)
DISCRETE = Spec((3,), Discrete(2), 10)


def by_mistake(obs, act):
    raise KeyError("velocity")


class Unhashable:
    def __eq__(self, other):
        return True

    def __call__(self, obs, act):
        return obs


def leaving(obs, act):
    raise SystemExit


MISTAKES = {
    "a scalar": (lambda o, a: o[0], r"array of shape \(\), a scalar"),
    "a Python number": (lambda o, a: 3.0, r"the number 3\.0"),
    "a matrix": (lambda o, a: o[:, None] * a, r"array of shape \(3, 1\)"),
    "an empty vector": (lambda o, a: o[:0], r"array of shape \(0,\)"),
    "None": (lambda o, a: None, "returned None"),
    "text": (lambda o, a: "obs", "returned a str"),
    "a tuple": (lambda o, a: (o, a), "a tuple of 2"),
    "a list": (lambda o, a: [o[0], a[0]], "a list of 2"),
    "a dict": (lambda o, a: {"obs": o}, "a dict"),
    "a NumPy function": (lambda o, a: o / np.linalg.norm(o), r"calls NumPy .*use jax\.numpy \(test_features\.py, line"),
    "a Python number of an array": (lambda o, a: jnp.array([float(o[0])]), "as a Python number"),
    "a Python if": (lambda o, a: o if o[0] > 0 else -o, r"`if`.*use jnp\.where"),
    "a range over an array": (lambda o, a: jnp.array([0.0 for _ in range(o[0].astype(int))]), "Python integer"),
    "a mask": (lambda o, a: o[o > 0], "indexes by a mask"),
    "complex numbers": (lambda o, a: o * 1j, "complex64 numbers: floats are needed"),
    "integers": (lambda o, a: jnp.sign(o).astype(int), "int32 numbers: floats are needed"),
    "booleans": (lambda o, a: o > 0, "bool numbers: floats are needed"),
    "an exit": (leaving, "raised SystemExit"),
    "an error of its own": (by_mistake, r"raised KeyError: 'velocity' \(test_features\.py, line"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_function_that_is_no_moment_function_is_refused_in_one_line(mistake):
    function, named = MISTAKES[mistake]
    with pytest.raises(
        SettingError, match=rf"^moments\(obs, act\) must return a vector of numbers .*{named}"
    ) as caught:
        width_of(function, SPEC)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (3, "moments is 3: give a function"),
        (lambda obs: obs, r"moments takes \(obs\): give a function of \(obs, act\)"),
        (lambda obs, act, t: obs, r"takes \(obs, act, t\)"),
        (Unhashable(), "moments is a Unhashable that has no hash"),
    ],
)
@pytest.mark.parametrize("make", [us.daequil, us.aggrevate])
def test_a_setting_that_cannot_be_called_with_two_arguments_is_refused_when_it_is_set(make, given, named):
    with pytest.raises(SettingError, match=named):
        make(moments=given)


def test_for_discrete_actions_the_message_says_what_the_action_is():
    with pytest.raises(SettingError, match=r"TypeError: .*; act is a vector of 2 probabilities"):
        width_of(lambda obs, act: obs[act], DISCRETE)
    assert width_of(lambda obs, act: jnp.outer(act, obs).ravel(), DISCRETE) == 6


@pytest.mark.parametrize("function", [max, functools.partial(lambda k, o, a: k * o, 2.0), jnp.multiply])
def test_any_callable_of_two_vectors_may_be_tried(function):
    if function is max:  # it has no signature, and compares arrays
        with pytest.raises(SettingError, match=r"truth value|`if`"):
            width_of(function, SPEC)
    else:
        assert width_of(function, SPEC) == 3


def test_every_critic_notices_a_length_that_changes():
    calls = []

    def growing(obs, act):
        calls.append(1)
        return jnp.concatenate([obs] * len(calls))

    key, t, at = jax.random.key(0), jnp.zeros((), int), (jnp.ones(3), jnp.ones(1))
    for make in (
        lambda: MLPCritic.init(key, SPEC, (4,), features=growing),
        lambda: TimedCritic.init(key, SPEC, (4,), growing),
        lambda: LinearCritic.init(SPEC, growing),
    ):
        calls.clear()
        critic = make()
        with pytest.raises(SettingError, match="6 numbers after 3 before"):
            critic(t, *at)


def test_rows_at_which_moments_or_their_gradients_are_not_finite_are_found():
    obs, act = np.array([[1.0, 1, 1], [0, 0, 0], [0, 2, 0]], np.float32), np.ones((3, 1), np.float32)
    assert not_finite(lambda o, a: o / jnp.linalg.norm(o), obs, act).tolist() == [False, True, False]
    roots = functools.partial(gradient_not_finite, lambda o, a: jnp.sqrt(o))
    assert not not_finite(lambda o, a: jnp.sqrt(o), obs, act).any()
    assert roots(obs, act).tolist() == [False, True, True]


def test_a_masked_function_gives_no_value_and_no_gradient_where_it_is_nan():
    def gradient(x, real):
        return jax.value_and_grad(lambda x: only_where(real, lambda y: jnp.sqrt(y).sum(), x))(x)

    value, slope = gradient(jnp.array([0.0, -1.0]), jnp.array(False))
    assert float(value) == 0
    assert slope.tolist() == [0, 0]
    value, slope = gradient(jnp.array([4.0, 1.0]), jnp.array(True))
    assert float(value) == 3
    assert slope.tolist() == [0.25, 0.5]


def test_padding_is_a_copy_of_a_real_row():
    rows = {"a": jnp.array([[1.0], [jnp.nan], [3.0]]), "b": jnp.array([1, 2, 3])}
    real = {"a": jnp.array([[7.0], [8.0]]), "b": jnp.array([9, 10])}
    filled = padded_with(rows, jnp.array([True, False, True]), real)
    assert filled["a"].ravel().tolist() == [1, 7, 3]
    assert filled["b"].tolist() == [1, 9, 3]
    demonstrations, _ = us.load("Forest").split([1], 0.0)
    empty = Dataset.empty(demonstrations, 3)
    assert int(empty.size) == 0
    np.testing.assert_array_equal(empty.steps.obs, np.repeat(demonstrations.steps.obs[:1], 3, axis=0))


def test_a_moment_function_is_called_with_vectors_of_the_task():
    seen = []
    evaluate(lambda o, a: seen.append((o.shape, a.shape)) or o, jnp.ones(3), jnp.ones(1))
    assert seen == [((3,), (1,))]


def test_an_array_that_was_stored_in_an_earlier_call_is_named():
    stored = []

    def keeping(obs, act):
        stored.append(obs)
        return stored[0]

    width_of(keeping, SPEC)
    with pytest.raises(SettingError, match="stored in an earlier call"):
        not_finite(keeping, np.ones((2, 3)), np.ones((2, 1)))
