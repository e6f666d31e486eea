"""Reward matching on hand-made steps: a player that records its inputs, demonstrations, and the learner's steps."""

import jax
import jax.numpy as jnp
import numpy as np

import understudy as us
from understudy.algorithms.reward.moments import SideCounts
from understudy.core.types import Replay, RoundData, Transition
from understudy.rl import SAC

HORIZON = 10
SPACE = us.Continuous((-2.0,), (2.0,))


class RecordingSAC(SAC):
    """Learns nothing, and returns its inputs as metrics: a minibatch, the new steps and the progress."""

    def improve(self, state, experience, progress, key):
        inputs = {"sampled": experience.sample(key), "new_steps": experience.new_steps, "progress": progress}
        return state, {"critic_loss": jnp.zeros(()), **inputs}


def recording(make=us.adril, **settings):
    """An algorithm with one update per round, and minibatches that are large enough to contain every row.

    AdRIL has the indicator kernel and starts untrained.
    """
    given = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 2048}
    given |= {"obs_scaling": "none"}
    if make is us.adril:
        given |= {"kernel": "indicator", "balanced": False, "clone_steps": 0, "bandwidth": 1.0, "features": 512}
    return make(**given | settings, sac=RecordingSAC(hidden=(4,), discount=0.9))


def demonstrations(lengths=(4, 10, 10, 10), ended=(True, False, False, False), **more):
    """Episodes whose first observation is the row number, so that samples can be identified."""
    count = sum(lengths)
    rng = np.random.default_rng(0)
    obs = np.stack([np.arange(count), rng.normal(size=count)], axis=1)
    terminals = np.zeros(count, bool)
    terminals[np.cumsum(lengths) - 1] = ended
    act = rng.uniform(-1, 1, size=(count, 1))
    options = {"terminals": terminals, "horizon": HORIZON, "action_space": SPACE} | more
    return us.Demonstrations.from_arrays(obs, act, np.array(lengths), **options)


FIRST_LEARNER_ROW = 1000
"""The learner's rows are numbered from here."""


def learner_steps(rounds, per_round=12, ended=(), terminal=()):
    """The steps of some rounds. Episodes are truncated in the rows `ended` and terminate in the rows `terminal`."""
    count = rounds * per_round
    last = np.isin(np.arange(count), [*ended, *terminal])
    t, row = np.zeros(count, int), 0
    for row in range(1, count):
        t[row] = 0 if last[row - 1] else t[row - 1] + 1
    obs = np.stack([FIRST_LEARNER_ROW + np.arange(count), np.random.default_rng(1).normal(size=count)], axis=1)
    columns = (t, obs, np.zeros((count, 1)), obs, np.isin(np.arange(count), terminal), last, np.ones(count, bool))
    t, obs, act, following, terminal, last, known = (jnp.asarray(x) for x in columns)
    round_ = jnp.asarray(np.repeat(np.arange(rounds), per_round), jnp.int32)
    obs, act, following = (x.astype(jnp.float32) for x in (obs, act, following))
    return Transition(t.astype(jnp.int32), obs, act, following, terminal, last, known, round_)


def round_data(data, steps, index, per_round=12, **more):
    """The input of the only update in round `index`."""
    rows = slice(index * per_round, (index + 1) * per_round)
    new_steps = jax.tree.map(lambda x: x[rows][None], steps)
    replay = Replay(steps, jnp.zeros(steps.t.shape), jnp.asarray((index + 1) * per_round))
    return RoundData(data, replay=replay, new_steps=new_steps, round=jnp.asarray(index), update=jnp.asarray(0), **more)


INIT = jax.jit(lambda algorithm, spec, data: algorithm.init(jax.random.key(0), spec, data), static_argnums=1)
UPDATE = jax.jit(lambda algorithm, state, data: algorithm.update(state, data, jax.random.key(1)))


def side(steps, episodes, absorbing_steps=0):
    return SideCounts(*(jnp.asarray(x, jnp.float32) for x in (steps, episodes, absorbing_steps)))


def row_of(batch):
    """The row of each sample: of the demonstrations, or of the learner from FIRST_LEARNER_ROW on."""
    return np.rint(np.asarray(batch.obs)[..., 0]).astype(int)


STEPS_WITH_ENDS = learner_steps(3, ended=[9, 21, 35], terminal=[13])
"""The learner's steps: truncated in row 9 (round 0) and 21 (round 1), terminated in row 13 (round 1). Round 2 is room
that is not filled yet.
"""
