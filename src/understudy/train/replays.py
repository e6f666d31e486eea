"""Replay estimation: the expert's moments from its demonstrations and from weighted replays of a clone.

With few demonstrations their moments are noisy, and a learner that matches them also matches their accidents. A clone
can be rolled out as often as needed, but drifts off the expert's states. A membership M(s) from 0 to 1 says where the
clone can be trusted, and a step of its episodes counts by M of all states up to it. The demonstrations are split into
folds. For each fold D_2, with the other episodes as D_1:

    1. train an ensemble of clones on D_1
    2. d(s) ← the variance of the ensemble's actions,  M(s) ← min(1, exp(1 − d(s) / max_{D_1} d))
    3. E f ← E_{episodes of a clone} [ Σ_t f_t Π_{k ≤ t} M(s_k) ]  +  E_{D_2} [ Σ_t f_t (1 − Π_{k ≤ t} M(s_k)) ]

and the mean over folds stands for the expert in a moment function (`core.types.Weighted`). If the clone acts as the
expert wherever M is 1, the first sum has no bias there, and the second is unbiased for the rest. Only f sees the
estimate. Minibatches, cloning, and the held-out payoff use the demonstrations.

Reference: Swamy, Rajaraman, Peng, Choudhury, Bagnell, Wu, Jiao and Ramchandran, "Minimax Optimal Online Imitation
Learning via Replay Estimation" (2022). `tabular.replays` is the exact version on finite MDPs.

Deviations: the source splits the demonstrations once. With folds every episode is in D_2 once, and clones see more
data. M is ours: in the source's theory it is an indicator of the states in D_1. Steps of a clone with a product below
`SMALLEST` are left out. All seeds of a call share the estimate, as they share the demonstrations.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from understudy.algorithms.off_q.bc import BC
from understudy.collect.recorder import Episodes
from understudy.core.errors import NeedsError
from understudy.core.notices import notice
from understudy.core.types import Dataset, Spec, Transition, Weighted
from understudy.data import Demonstrations
from understudy.data.holdout import training_rows
from understudy.evaluation.embeddings import action_vectors
from understudy.game import Algorithm
from understudy.policies import Policy
from understudy.train import loop
from understudy.train.programs import traced

FOLDS = 5
"""The most folds. With fewer episodes, each is a fold."""
MEMBERS = 5
"""Clones in an ensemble."""
CLONE = BC(rounds=8, gradient_steps=500, hidden=(64, 64), batch_size=128)
SEED = 1_000_033
"""Seed of the clones and of their episodes."""
SMALLEST = 1e-3
Play = Callable[[Policy, int, int], Episodes]
"""Plays so many episodes of a policy from the starts of a seed."""


class Steps(NamedTuple):
    """Weighted steps on the host."""

    steps: Transition
    weight: np.ndarray
    replayed: np.ndarray
    """Which steps are a clone's."""


def with_replays(
    algorithm: Algorithm,
    spec: Spec,
    training: Dataset,
    demonstrations: Demonstrations,
    counts: list[int],
    holdout: float,
    play: Play,
) -> Dataset:
    """The training steps with an estimate for each run, which uses the first counts[i] demonstrations."""
    found = {
        count: estimate(algorithm, spec, demonstrations.first(count), holdout, play) for count in dict.fromkeys(counts)
    }
    most = max(len(one.weight) for one in found.values())
    arrays = {count: padded(one, most) for count, one in found.items()}
    return training._replace(estimate=jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *(arrays[n] for n in counts)))


def estimate(
    algorithm: Algorithm,
    spec: Spec,
    demonstrations: Demonstrations,
    holdout: float,
    play: Play,
) -> Steps:
    """Lines 1 to 3 on the steps that a run trains on, with `algorithm.replays` episodes in all."""
    rows = training_rows(demonstrations.lengths, demonstrations.episodes, holdout)
    steps = _taken(demonstrations.transitions(), rows)
    episode = np.repeat(np.arange(demonstrations.episodes), demonstrations.lengths)[rows]
    _, number = np.unique(episode, return_inverse=True)
    folds = min(FOLDS, int(number.max()) + 1)
    if folds < 2:
        raise NeedsError(
            f"replays is {algorithm.replays}, and a run trains on one demonstration: replay estimation splits them, so "
            "give two or more, or replays=0"
        )
    parts: list[Steps] = []
    for fold in range(folds):
        inside = number % folds == fold
        confidence = Confidence.fit(spec, steps, ~inside, fold)
        replays = -(-algorithm.replays // folds)  # rounded up
        parts.append(_replayed(confidence, play(confidence.members[0], replays, SEED + fold), 1 / folds))
        own, weight = _taken(steps, inside), np.zeros(inside.sum())
        for one in np.unique(number[inside]):
            at = number[inside] == one
            whole = (own.t[at].max() + 1) / at.sum()  # a block of its steps may be held out
            weight[at] = whole * (1 - np.cumprod(confidence(own.obs[at])))
        parts.append(Steps(own, weight / (folds * len(np.unique(number[inside]))), np.zeros(len(weight), bool)))
    steps, weight, replayed = _joined(parts)
    if algorithm.match == "obs-next":
        weight = weight * steps.known_next
    share = weight[replayed].sum() / weight.sum()
    notice(f"replay estimation: {share:.0%} of the expert's side of f is from replays, the rest from demonstrations")
    kept = weight > 0
    return Steps(_taken(steps, kept), weight[kept], replayed[kept])


class Confidence(NamedTuple):
    """M(s), and the clone whose episodes it weighs."""

    spec: Spec
    members: list[Policy]
    largest: float
    """The largest variance on D_1."""

    @classmethod
    def fit(cls, spec: Spec, steps: Transition, first: np.ndarray, fold: int) -> "Confidence":
        """Lines 1 and 2. `first` is the mask of D_1."""
        # The others are padding, so that all folds have one shape and are one compiled program.
        order = np.argsort(~first, kind="stable")
        data = Dataset(jax.tree.map(jnp.asarray, _taken(steps, order)), jnp.full(MEMBERS, int(first.sum()), jnp.int32))
        keys = jax.random.split(jax.random.fold_in(jax.random.key(SEED), fold), MEMBERS)
        states = jax.device_get(loop.train(CLONE, spec, data, keys, progress=None).states)
        members = [traced(CLONE).policy(jax.tree.map(lambda x, i=i: x[i], states)) for i in range(MEMBERS)]
        members = [jax.tree.map(np.asarray, member) for member in members]
        unscaled = cls(spec, members, 1.0)
        return unscaled._replace(largest=max(float(unscaled.variance(steps.obs[first]).max()), 1e-12))

    def variance(self, obs: np.ndarray) -> np.ndarray:
        """d(s): the variance of the members' actions, in half-ranges or as one-hot vectors."""
        rng = np.random.default_rng(0)
        acts = [np.asarray(one.mode(one.reset(rng, (len(obs),)), obs)) for one in self.members]
        return np.stack([action_vectors(self.spec, act) for act in acts]).var(axis=0).sum(axis=1)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """M(s)."""
        return np.minimum(1.0, np.exp(1 - self.variance(obs) / self.largest))


def _replayed(confidence: Confidence, played: Episodes, weight: float) -> Steps:
    """The steps of a clone's episodes, weighted by M of all states up to them. Each episode has this weight."""
    parts = []
    for number, length in enumerate(played.lengths):
        steps = Transition(*(np.asarray(column)[number, :length] for column in played.steps))
        inside = np.cumprod(confidence(steps.obs))
        kept = inside >= SMALLEST
        own = _taken(steps._replace(round=np.full(length, -1, np.int32)), kept)
        parts.append(Steps(own, inside[kept] * weight / len(played.lengths), np.ones(kept.sum(), bool)))
    return _joined(parts)


def _joined(parts: list[Steps]) -> Steps:
    return jax.tree.map(lambda *columns: np.concatenate(columns), *parts)


def _taken(steps: Transition, rows: np.ndarray) -> Transition:
    return Transition(*(np.asarray(column)[rows] for column in steps))


def padded(given: Steps, count: int) -> Weighted:
    """The steps in float32, with copies of the first one that have weight 0."""
    rows = np.where(np.arange(count) < len(given.weight), np.arange(count), 0)
    weight = np.where(np.arange(count) < len(given.weight), given.weight[rows], 0.0)
    cumulative = np.cumsum(weight) / weight.sum()
    return Weighted(_taken(given.steps, rows), weight.astype(np.float32), cumulative.astype(np.float32))
