"""critic_obs: critics and moment functions that see part of the observation, for every algorithm that has them."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_protocol

import understudy as us
from support.envs import Line
from understudy.algorithms import find
from understudy.cli.train_command import parse
from understudy.core.errors import SettingError, UnknownNameError
from understudy.core.types import Spec
from understudy.deploy.structure import describe_spec, read_spec
from understudy.game.features import visible

SEEN = (0, 1)
QUICK = ("advil",)
CASES = [
    pytest.param(name, kind, marks=() if name in QUICK else pytest.mark.slow)
    for name, kind in test_protocol.ONE_KIND
    if name in us.ALGORITHMS and find(name).has_critic
]


class Blurred(us.Environment):
    """`Line`, with two more numbers in the observation that say nothing of the action. `scale` changes only them."""

    scale: jax.Array
    line: Line

    @property
    def spec(self):
        return Spec((4,), self.line.spec.action, 8, obs_parts=(("seen", 2), ("unseen", 2)))

    def reset(self, key):
        state, obs = self.line.reset(key)
        return state, self.observed(obs)

    def set_state(self, obs, t):
        state, seen = self.line.set_state(obs[:2], t)
        return state, self.observed(seen)

    def step(self, state, act, key):
        new = self.line.step(state, act, key)
        return new._replace(obs=self.observed(new.obs))

    def observed(self, obs):
        return jnp.concatenate([obs, self.scale * jnp.sin(40 * obs)])

    def expert(self):
        expert = self.line.expert()
        return eqx.tree_at(lambda e: e.net, expert, replace(expert.net, input_indices=SEEN))


def trained(name, kind, scale, critic_obs):
    """The leaves of the last policy that is trained where the unseen numbers have this scale. It does not see them."""
    env = Blurred(jnp.asarray(scale), Line(kind == "discrete"))
    demos = us.record(env, episodes=4, seed=1)
    algorithm = find(name)(**find(name).small)
    given = {"env": env} if "environment" in algorithm.card.needs else {}
    given |= {"expert": env.expert()} if "expert" in algorithm.card.needs else {}
    kept = []
    given["visit"] = lambda done, states: kept.append(jax.device_get(jax.tree.map(lambda x: x[0], states())))
    us.imitate(algorithm, demos, **given, policy_obs=["seen"], critic_obs=critic_obs)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(algorithm.policy(kept[-1]).policy)]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_an_unseen_number_changes_nothing_and_a_seen_one_does(name, kind):
    first, second = (trained(name, kind, scale, ["seen"]) for scale in (1.0, 3.0))
    assert same(first, second)
    # Soft Q-learning's critics are its policy, and these have no other function of states.
    soft_q_alone = name in ("sqil", "iqlearn", "iqlearn_offline") and kind == "discrete"
    no_signal = name == "thrifty_dagger"  # its critic is of success, which this task does not report
    if not (soft_q_alone or no_signal):
        assert not same(first, trained(name, kind, 1.0, None)), "a critic that sees all is another one"


def test_a_critic_sees_zeros_at_other_indices():
    np.testing.assert_array_equal(visible(jnp.array([[1.0, jnp.nan, 3.0]]), (0, 2)), [[1, 0, 3]])
    assert visible("unchanged", None) == "unchanged"


def test_critic_obs_is_checked_named_and_saved(continuous, tmp_path):
    for bad in ((), (0, 0), (0, 3), "01"):
        with pytest.raises(SettingError, match="critic_obs is "):
            us.imitate(us.advil(**us.advil.small), continuous, critic_obs=bad)
    named = replace(continuous, obs_parts=(("arm", 2), ("goal", 1)))
    with pytest.raises(UnknownNameError, match="'gaol' in critic_obs: did you mean 'goal'"):
        us.imitate(us.advil(**us.advil.small), named, critic_obs=["gaol"])
    with pytest.raises(SettingError, match=r"^Behavioral cloning has no critic: leave out critic_obs"):
        us.imitate(us.bc(**us.bc.small), named, critic_obs=["goal"])
    spec = Spec((3,), us.Discrete(2), 5, (2, 0), critic_obs=(1, 2))
    assert read_spec(json.loads(json.dumps(describe_spec(spec)))) == spec
    assert spec.with_extra_obs(1).critic_obs == (1, 2, 3)


def test_soft_q_sees_what_both_may_see():
    player = us.rl.SoftQ(hidden=(4,))
    spec = Spec((3,), us.Discrete(2), 5, (2, 0), critic_obs=(0, 1))
    assert player.init(jax.random.key(0), spec).critics.input_indices == (0,)
    with pytest.raises(SettingError, match="need a common index"):
        player.init(jax.random.key(0), replace(spec, critic_obs=(1,)))


def test_the_command_line_has_an_option():
    options = parse(["valuedice", "--demos", "Pendulum", "--critic-obs", "0", "goal"])[1]
    assert options.critic_obs == ("0", "goal")
