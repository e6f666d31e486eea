"""Which policy a run returns, and which run is selected: by one criterion, computed from held-out demonstrations.

The criterion is the largest payoff over the unit ball of a Gaussian kernel's function space,

    sup_{‖f‖ ≤ 1} E f(learner) − E f(expert) = ‖E k(learner, ·) − E k(expert, ·)‖,   k(x, y) = exp(−‖x − y‖² / 2h²)

with x = (s, a), states standardized by the demonstrations and clipped, continuous actions in [-1, 1], discrete actions
one-hot, and h the bandwidth rule of `game.kernels`. Zero is a perfect match. It is exact, in float64, without random
features. Two payoffs of the paper use it:

    off-Q     (s, π(s)) against (s, a) on held-out steps: needs no environment
    reward    steps of fresh episodes of π against held-out steps; an episode that terminates early continues in the
              absorbing state, at distance from all others

The second is for algorithms that train on steps of an environment, and for those that match observations alone. For
these x is s or (s, s'), as in their f, and an off-Q payoff would be 0.

Reward-moment algorithms improve π by RL, so the last policy may be worse than an earlier one. Their candidates are the
last policy π̄, the last acting policy π, and one policy of each part of training (`candidates`). Each plays the same
EPISODES fresh starts. The last policy is returned, unless another payoff is lower by more than two standard errors of
their difference (a jackknife over the episodes). So noise does not choose, and the payoff is that of the returned
policy. The criterion never uses a return, unless the person asks for `select="return"`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from understudy.collect.recorder import Episodes
from understudy.core.types import Dataset, Spec, Transition
from understudy.evaluation.embeddings import action_vectors, evenly_spaced, standardized
from understudy.game.kernels import Match, bandwidth_of
from understudy.policies.actor import Actor
from understudy.policies.normalization import Statistics

Select = Literal["payoff", "last", "return"]
SELECTS: tuple[Select, ...] = ("payoff", "last", "return")
EPISODES = 10
"""Fresh episodes of each candidate."""
MAX_STEPS = 1024
"""The most steps of a side; the cost is quadratic."""
ERRORS = 2.0
"""Standard errors by which another policy must be better than the last one."""
FEW_STEPS = 50
"""A payoff on fewer held-out steps says little."""


class HeldOut(NamedTuple):
    """The expert's side of the criterion, for one number of demonstrations."""

    spec: Spec
    statistics: Statistics
    bandwidth: float
    t: np.ndarray
    raw_obs: np.ndarray
    obs: np.ndarray
    act: np.ndarray
    absorbing: float
    """The expert's share of time in the absorbing state."""
    match: Match
    points: np.ndarray
    """The part of each step that the criterion sees."""

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(x, y, "sqeuclidean") / (2 * self.bandwidth**2))


def held_out(spec: Spec, training: Dataset, held: Dataset, run: int, match: Match = "obs-act") -> HeldOut:
    """The criterion's data for run number `run`. `held` has a leading axis of runs."""
    steps = Transition(*(np.asarray(column) for column in training.steps))
    size = int(training.size[run])
    obs = steps.obs[evenly_spaced(size, MAX_STEPS)].astype(np.float64)
    statistics = Statistics.of(spec, obs, np.full((len(obs), 1), 1 / len(obs)))
    sample = _evenly_spaced(steps, size, match)
    points = _points(spec, statistics, sample, match)
    distances = pdist(points) if len(points) > 1 else np.ones(1)
    positive = distances[distances > 0]
    bandwidth = float(bandwidth_of(positive)) if positive.size else 1.0
    ends = np.flatnonzero(steps.last[:size])
    lengths, terminal = steps.t[ends] + 1, steps.terminal[ends]
    missing = np.where(terminal, spec.horizon - lengths, 0).sum()
    absorbing = float(missing / (lengths.sum() + missing)) if len(ends) else 0.0
    own = _evenly_spaced(Transition(*(np.asarray(x[run]) for x in held.steps)), int(held.size[run]), match)
    encoded, act = standardized(statistics, own.obs), action_vectors(spec, own.act)
    seen = _points(spec, statistics, own, match)
    return HeldOut(spec, statistics, bandwidth, own.t, own.obs, encoded, act, absorbing, match, seen)


def _evenly_spaced(steps: Transition, size: int, match: Match) -> Transition:
    """Some of the first `size` steps. Those whose next observation is unknown have no (s, s')."""
    usable = np.flatnonzero(steps.known_next[:size]) if match == "obs-next" else np.arange(size)
    rows = usable[evenly_spaced(len(usable), MAX_STEPS)]
    return Transition(*(column[rows] for column in steps))


def _points(spec: Spec, statistics: Statistics, steps: Transition, match: Match) -> np.ndarray:
    """The part of each step that moments see, in the kernel's coordinates."""
    obs = standardized(statistics, steps.obs)
    if match == "obs":
        return obs
    other = action_vectors(spec, steps.act) if match == "obs-act" else standardized(statistics, steps.next_obs)
    return np.concatenate([obs, other], axis=1)


def held_out_payoff(actor: Actor, data: HeldOut) -> float:
    """The off-Q payoff of a policy's deterministic actions on held-out steps; NaN if one is not finite."""
    carry = actor.policy.reset(np.random.default_rng(0), data.t.shape)._replace(t=data.t)
    learner = action_vectors(actor.spec, np.asarray(actor.policy.mode(carry, data.raw_obs)))
    if not np.isfinite(learner).all():
        return float("nan")
    if data.match != "obs-act":
        return 0.0  # without actions, the two sides have the same moments
    # The two sides share their states, so the kernel is a product of a state factor and an action factor.
    states = data.kernel(data.obs, data.obs)
    cross = data.kernel(learner, data.act)
    actions = data.kernel(learner, learner) - cross - cross.T + data.kernel(data.act, data.act)
    return float(np.sqrt(max((states * actions).mean(), 0.0)))


class Judged(NamedTuple):
    """A candidate's fresh episodes: its cost on all of them, and on all but each one in turn."""

    payoff: float
    """The reward payoff."""
    payoffs_without: np.ndarray
    returns: np.ndarray

    @property
    def payoff_error(self) -> float:
        return jackknife_error(self.payoffs_without)

    def costs(self, select: Select) -> tuple[float, np.ndarray]:
        """What is minimised: the payoff, or minus the mean return."""
        if select == "return":
            count = len(self.returns)
            without = (self.returns.sum() - self.returns) / max(count - 1, 1)
            return -float(self.returns.mean()), -without
        return self.payoff, self.payoffs_without


def judge(episodes: Episodes, data: HeldOut) -> Judged:
    """The reward payoff of a policy's episodes against held-out steps."""
    count, horizon = len(episodes.lengths), data.spec.horizon
    most = max(MAX_STEPS // count, 1)
    rows = [np.unique(np.linspace(0, length - 1, min(length, most)).astype(int)) for length in episodes.lengths]
    expert = data.points
    points = [_points_of(data, episodes, episode, chosen) for episode, chosen in enumerate(rows)]
    flat, sizes = np.concatenate(points), np.asarray([len(chosen) for chosen in rows])
    # Mean kernels between episodes, and between episodes and the expert: a payoff needs no more than these.
    to_episode = np.repeat(np.eye(count), sizes, axis=0) / sizes[np.repeat(np.arange(count), sizes), None]
    own = to_episode.T @ data.kernel(flat, flat) @ to_episode
    cross = to_episode.T @ data.kernel(flat, expert).mean(axis=1)
    expert_own = float(data.kernel(expert, expert).mean())
    ends = episodes.lengths - 1
    terminal = np.asarray(episodes.steps.terminal)[np.arange(count), ends]
    alive = np.where(terminal, episodes.lengths / horizon, 1.0)

    def payoff(weights: np.ndarray) -> float:
        learner, here = weights * alive, 1 - data.absorbing
        squared = learner @ own @ learner - 2 * here * learner @ cross + here**2 * expert_own
        return float(np.sqrt(max(squared + (weights @ (1 - alive) - data.absorbing) ** 2, 0.0)))

    without = [payoff(np.where(np.arange(count) == left, 0.0, 1 / max(count - 1, 1))) for left in range(count)]
    return Judged(payoff(np.full(count, 1 / count)), np.asarray(without), episodes.returns)


def choose(judged: Sequence[Judged], select: Select) -> int:
    """The index of the candidate to return. The first is the last policy of training."""
    last, last_without = judged[0].costs(select)
    chosen, lowest = 0, last
    for index, candidate in enumerate(judged[1:], start=1):
        cost, without = candidate.costs(select)
        if cost < lowest and last - cost > ERRORS * jackknife_error(last_without - without):
            chosen, lowest = index, cost
    return chosen


def jackknife_error(without: np.ndarray) -> float:
    """The standard error of a statistic, from its values without each of n samples; infinite for a single one."""
    count = len(without)
    if count < 2:
        return float("inf")
    return float(np.sqrt((count - 1) / count * np.square(without - without.mean()).sum()))


def episode_seed(seed: int) -> int:
    """The seed of a run's fresh episodes. All its candidates start from the same states."""
    return int(np.random.SeedSequence([seed, 2, 2]).generate_state(1)[0])


def _points_of(data: HeldOut, episodes: Episodes, episode: int, rows: np.ndarray) -> np.ndarray:
    steps = Transition(*(np.asarray(x)[episode, rows] for x in episodes.steps))
    return _points(data.spec, data.statistics, steps, data.match)
