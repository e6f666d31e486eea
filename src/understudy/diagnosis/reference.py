"""The reference: a small clone of the demonstrations, which shows what the data allow.

If a run's policy is worse than the reference on the same data, its training is the problem. If the reference is as
bad, the data are. It is `bc` with 64 × 64 units and 4,000 gradient steps, on the run's own demonstrations and held-
out episodes.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from understudy.algorithms.off_q.bc import BC
from understudy.core.notices import UnderstudyWarning
from understudy.core.spaces import margin_bounds
from understudy.core.types import ActionSpace, Continuous, MultiDiscrete, Transition
from understudy.diagnosis.alike import evenly, spread, vectors
from understudy.diagnosis.measures import CannotMeasureError
from understudy.diagnosis.subject import Subject
from understudy.policies.actor import Actor
from understudy.train.imitate import imitate

HOLDOUT = 0.25
"""The held-out fraction where no run says another."""
FEATURES = 200
PENALTIES = (1e-2, 1.0, 1e2, 1e4)
MOST = 4000
"""Steps on which an error is measured."""


@dataclass(frozen=True)
class Steps:
    t: np.ndarray
    obs: np.ndarray
    act: np.ndarray


@dataclass(frozen=True)
class Reference:
    """Clones of several numbers of demonstrations, and the steps on which policies are compared."""

    counts: list[int]
    actors: list[Actor]
    training: Steps
    unseen: Steps | None
    """Steps that neither the run nor the reference trained on: of the expert's fresh episodes, or held out."""
    unseen_from: str
    space: ActionSpace
    seed: int

    def errors(self, actor: Actor) -> tuple[float, float]:
        """A policy's error on training steps and on unseen ones (NaN without any)."""
        unseen = float("nan") if self.unseen is None else error(actor, self.unseen, self.space)
        return error(actor, self.training, self.space), unseen


def build(subject: Subject) -> Reference:
    demos = subject.training
    if demos is None:
        raise CannotMeasureError("no demonstrations")
    holdout = HOLDOUT if subject.result is None else float(subject.result.config["holdout"])
    count = demos.episodes
    counts = sorted({max(count // 4, 1), max(count // 2, 1), count})
    seen = None if subject.actor is None else subject.actor.spec.policy_obs
    space = demos.action_space
    if isinstance(
        space, Continuous
    ):  # stated bounds may be far wider than the actions, which a clone would suffer from
        space = margin_bounds(demos.actions)
    plain = replace(demos, env=None, recorded_space=space)
    learner = BC(rounds=8, gradient_steps=500, hidden=(64, 64), batch_size=128)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)  # they are about the reference, not about the run
        result = imitate(learner, plain, episodes=counts, holdout=holdout, progress=False, policy_obs=seen)
    training, held = demos.split([count], holdout)
    size = int(training.size[0])
    known = Transition(*(np.asarray(x) for x in training.steps))
    rows = evenly(size, MOST)
    unseen, source = None, ""
    if subject.theirs is not None:
        fresh, source = subject.theirs, "the expert's fresh episodes"
        chosen = evenly(int(fresh.lengths.sum()), MOST)
        steps = fresh.steps
        t, obs, act = (fresh.flat(np.asarray(x))[chosen] for x in (steps.t, steps.obs, steps.act))
        unseen = Steps(t, obs, act)
    elif holdout > 0 and count >= 4:
        source = "held-out episodes"
        own = int(held.size[0])
        unseen = Steps(*(np.asarray(x)[0, :own] for x in (held.steps.t, held.steps.obs, held.steps.act)))
    return Reference(
        counts,
        result.policies,
        Steps(known.t[rows], known.obs[rows], known.act[rows]),
        unseen,
        source,
        demos.action_space,
        subject.seed,
    )


def simple_error(reference: Reference) -> float:
    """The error on unseen steps of the best ridge regression on random features: what cannot overfit. NaN without any.

    The penalty is chosen by the error on the last quarter of the training steps.
    """
    training, unseen, space = reference.training, reference.unseen, reference.space
    if unseen is None or len(training.t) < 8:
        return float("nan")
    mean, std = training.obs.mean(0, dtype=np.float64), spread(training.obs.astype(np.float64))
    rng = np.random.default_rng(reference.seed)
    directions = rng.standard_normal((len(mean), FEATURES)) / np.sqrt(len(mean))
    offsets = rng.uniform(-2, 2, FEATURES)

    def features(obs: np.ndarray) -> np.ndarray:
        z = np.clip((obs - mean) / std, -10, 10)
        return np.concatenate([np.ones((len(z), 1)), z, np.maximum(z @ directions + offsets, 0)], axis=1)

    phi, target = features(training.obs), vectors(space, training.act)

    def predicted(rows: np.ndarray, penalty: float, there: np.ndarray) -> np.ndarray:
        gram = phi[rows].T @ phi[rows] + penalty * np.eye(phi.shape[1])
        return _chosen(there @ np.linalg.solve(gram, phi[rows].T @ target[rows]), space)

    every = np.arange(len(phi))
    tested = every >= 0.75 * len(every)

    def tested_error(penalty: float) -> float:
        return disagreement(predicted(every[~tested], penalty, phi[tested]), training.act[tested], space)

    return disagreement(predicted(every, min(PENALTIES, key=tested_error), features(unseen.obs)), unseen.act, space)


def _chosen(values: np.ndarray, space: ActionSpace) -> np.ndarray:
    """Actions from predicted vectors."""
    if isinstance(space, Continuous):
        return values
    if isinstance(space, MultiDiscrete):
        ends = np.cumsum(space.nvec)
        return np.stack([part.argmax(1) for part in np.split(values, ends[:-1], axis=1)], axis=1)
    return values.argmax(1)


def actions(actor: Actor, t: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Deterministic actions at steps of any time."""
    carry = actor.policy.reset(np.random.default_rng(0), (len(obs),))._replace(t=t)
    return np.asarray(actor.policy.mode(carry, obs))


def error(actor: Actor, steps: Steps, space: ActionSpace) -> float:
    """The mean squared error over the actions' variance; or wrong actions over those of the best constant."""
    return disagreement(actions(actor, steps.t, steps.obs), steps.act, space)


def disagreement(chosen: np.ndarray, wanted: np.ndarray, space: ActionSpace, scale: np.ndarray | None = None) -> float:
    """How far actions are from others: 0 equal, 1 as bad as the best constant action."""
    if isinstance(space, Continuous):
        low, high = np.asarray(space.low), np.asarray(space.high)
        variance = wanted.var(0).sum() if scale is None else float(np.sum(scale))
        return float(np.square(np.clip(chosen, low, high) - wanted).sum(1).mean() / max(variance, 1e-9))
    wrong = (chosen != wanted).mean()
    columns = wanted.reshape(len(wanted), -1)
    if isinstance(space, MultiDiscrete):
        wrong = (chosen != wanted).any(1).mean()
    common = np.mean([np.bincount(column).max() / len(column) for column in columns.T])
    return float(wrong / max(1 - common, 0.05))
