"""Section 4's bounds on the imitation gap, evaluated on an instance, and the learners of its lower bounds.

    moments    class           upper bound                     holds because
    reward     F_r/2           2T sup U1                       −r is in F_r
    off-Q      F_Q/2T          2T² sup U2                      −Q^π is in F_Q
    on-Q       F_QE/2T         2T² sup U3 = ε H T              −Q^{π_E} is in F_QE;  ε = sup U3 / (H/2T)
    on-Q       {r, −r}         H Σ_t E_{s ~ π} e_t(s)          |A| ≤ H, see `recoverability`

U3 over F_QE/2T lies in ±H/2T. ε is the payoff divided by H/2T, so that 2T² sup U3 is written as ε H T. The box of
`q_box` contains F_Q/2T and does not depend on the dynamics. Payoffs over the box are larger, so the bounds hold there
too.

The lower bounds are learners with a payoff of ε. `lower_bound` is the gap of those on CLIFF.

    learner and its error probability p                           payoff        gap
    CLIFF, reward: in s_0, p = ε                                  U1 = ε        ε T
    CLIFF, off-Q: in s_0, p = ε T                                 U2 = ε        ε T²
    CLIFF, on-Q as in the paper: in s_0, p = ε                    U3 = ε / T    ε T
    CLIFF, on-Q: in s_0, p = ε T                                  U3 = ε        ε T²
    LOOP, reward: everywhere, p + (T − 1) (2p − p²) = T ε         U1 = ε        p (T − 1), about ε (T − 1) / 2
    LOOP, off-Q: in s_0, p = ε T, then it stays in s_2            U2 = ε        ε T (T − 1)
    LOOP, on-Q: everywhere, p = 2 T ε / (T + 1)                   U3 = ε        p (T − 1), about 2 ε (T − 1)
    UNICYCLE, classification error κ: in s_1, p = κ/2             l = κ         Σ_t p (1 − p)^{t−1} (T − t)
    LOOP, classification error κ: everywhere, p = κ/2             l = κ         p (T − 1)

Deviation: the paper's on-Q lower bound is Ω(εT), with the learner of its reward bound. That learner's payoff is ε/T,
not ε. With a payoff of ε the gap on CLIFF is ε T². There H = 2T, and the upper bound ε H T is twice the gap. The
payoffs of on-Q learners above are over the box. Over F_QE/2T, the payoff on LOOP is about 4ε/T. It shrinks with T as
H/2T does, and divided by H/2T it is about 2ε, which gives a gap of order T.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from understudy.core.arrays import Array
from understudy.core.errors import SettingError, check_choice, check_positive, check_whole
from understudy.game import NEEDS, Moments
from understudy.tabular.compiling import over_batches
from understudy.tabular.examples import Example, cliff, erring, loop, unicycle
from understudy.tabular.games import Game
from understudy.tabular.mdp import TOLERANCE, FiniteMDP, Table, check_policy, check_table
from understudy.tabular.moments import Box, induced, q_box, reward_box
from understudy.tabular.planning import advantages, imitation_gap, occupancy
from understudy.tabular.recoverability import error_bound


class Report(NamedTuple):
    """One bound on an instance, and the gap that it bounds. For a batch of MDPs the numbers are arrays."""

    moments: Moments
    label: str
    """The class of moment functions."""
    payoff: Any
    bound: Any
    gap: Any

    @property
    def ratio(self) -> Any:
        """gap / bound: at most 1, and 1 if the bound is tight. 0 if the bound is 0 up to rounding."""
        return np.divide(self.gap, self.bound, out=np.zeros_like(self.bound), where=self.bound > TOLERANCE)


def upper_bound(moments: Moments, payoff: Any, horizon: int) -> Any:
    """2T sup U1 for reward moments, 2T² sup U for off-Q and on-Q ones."""
    check_choice(tuple(NEEDS), moments=moments)
    return 2 * horizon * payoff if moments == "reward" else 2 * horizon**2 * payoff


def lower_bound(moments: Moments, epsilon: float, horizon: int) -> float:
    """The largest gap on CLIFF of a learner with payoff ε: ε T for reward moments, ε T² for off-Q and on-Q.

    The paper states Ω(εT) for on-Q moments, with a learner whose payoff is ε/T (`cliff_on_q_verbatim`). ε is at most 1
    for reward moments and 1/T for others, so that such a learner exists.
    """
    check_choice(tuple(NEEDS), moments=moments)
    check_whole(1, horizon=horizon)
    return horizon * _probability(epsilon, 1 if moments == "reward" else horizon)


def relative_error(payoff: Any, constant: Any, horizon: int) -> Any:
    """ε = 2T sup U3 / H: the payoff divided by its largest possible value over F_QE/2T."""
    return 2 * horizon * payoff / constant


def recoverable_bound(epsilon: Any, constant: Any, horizon: int) -> Any:
    """ε H T, with the ε of `relative_error`."""
    return epsilon * constant * horizon


def measure(mdp: FiniteMDP, expert: Any, policy: Any, reward: Any) -> list[Report]:
    """All upper bounds and the gap, for one MDP or a batch."""
    check_table(mdp, reward, bound=1.0)
    check_policy(mdp, expert, "the expert")
    check_policy(mdp, policy)
    payoffs, gap, constant, error = jax.tree.map(np.asarray, _numbers(mdp, expert, policy, reward))
    first = (0,) * (mdp.initial.ndim - 1)  # labels need the class of one MDP
    one, its_expert = jax.tree.map(lambda leaf: leaf[first], (mdp, np.asarray(expert)))
    reports = [
        Report(moments, functions(one, its_expert).label, payoff, upper_bound(moments, payoff, mdp.horizon), gap)
        for (moments, functions), payoff in zip(CLASSES, payoffs, strict=True)
    ]
    label = "{r, −r}: H times the classification error"
    return [*reports, Report("on-Q", label, error, recoverable_bound(error, constant, mdp.horizon), gap)]


BOXES: dict[Moments, Callable[[FiniteMDP, Table], Box]] = {
    "reward": lambda mdp, expert: reward_box(mdp),
    "off-Q": lambda mdp, expert: q_box(mdp),
    "on-Q": lambda mdp, expert: q_box(mdp),
}
CLASSES = (*BOXES.items(), ("on-Q", induced))


@over_batches
def _numbers(mdp: FiniteMDP, expert: Table, policy: Table, reward: Table) -> tuple[list[Array], Array, Array, Array]:
    """sup U for each of CLASSES, the gap, H of {r, −r} and (1/T) Σ_t E_{s ~ π} e_t(s)."""
    advantage = advantages(mdp, reward, expert)
    return (
        [functions(mdp, expert).sup(Game(of, mdp, expert).difference(policy)) for of, functions in CLASSES],
        imitation_gap(mdp, reward, expert, policy),
        jnp.max(jnp.abs(advantage), where=mdp.available, initial=0.0),
        error_bound(mdp, expert, policy, 1.0) / mdp.horizon,
    )


class Construction(NamedTuple):
    """A learner of a lower bound. Its payoff is over F_r/2 for reward moments, else over the box of F_Q/2T."""

    moments: Moments
    example: Example
    learner: np.ndarray
    payoff: float
    gap: float

    @property
    def bound(self) -> float:
        """The upper bound on the gap that follows from the payoff."""
        return float(upper_bound(self.moments, self.payoff, self.example.mdp.horizon))

    def __str__(self) -> str:
        return (
            f"{self.example.name}, {self.moments} moments, T = {self.example.mdp.horizon}: "
            f"payoff {self.payoff:.4g}, gap {self.gap:.4g}, upper bound {self.bound:.4g}"
        )


def cliff_reward(epsilon: float, horizon: int) -> Construction:
    """Errs in s_0 with probability ε: U1 = ε, the gap ε T."""
    return _construct("reward", cliff(horizon), _probability(epsilon, 1), where=0)


def cliff_off_q(epsilon: float, horizon: int) -> Construction:
    """Errs in s_0 with probability ε T: U2 = ε, the gap ε T²."""
    return _construct("off-Q", cliff(horizon), _probability(epsilon, horizon), where=0)


def cliff_on_q_verbatim(epsilon: float, horizon: int) -> Construction:
    """The learner of `cliff_reward`, as the paper's on-Q proof has it: U3 = ε / T, the gap ε T."""
    return _construct("on-Q", cliff(horizon), _probability(epsilon, 1), where=0)


def cliff_on_q(epsilon: float, horizon: int) -> Construction:
    """Errs in s_0 with probability ε T: U3 = ε, the gap ε T²."""
    return _construct("on-Q", cliff(horizon), _probability(epsilon, horizon), where=0)


def loop_reward(epsilon: float, horizon: int) -> Construction:
    """Errs everywhere with p, the smaller root of p + (T − 1) (2p − p²) = T ε: U1 = ε, the gap p (T − 1)."""
    example = loop(horizon)
    total, twice = horizon * _probability(epsilon, 1), 2 * horizon - 1
    p = 2 * total / (twice + math.sqrt(twice**2 - 4 * (horizon - 1) * total))
    return _construct("reward", example, p, where="all")


def loop_off_q(epsilon: float, horizon: int) -> Construction:
    """Errs in s_0 with probability ε T and stays in s_2, which the expert never visits: U2 = ε, the gap ε T (T − 1)."""
    example = loop(horizon)
    learner = erring(example, _probability(epsilon, horizon), where=0).copy()
    learner[:, 2] = [0.0, 1.0]
    return _evaluated("off-Q", example, learner)


def loop_on_q(epsilon: float, horizon: int) -> Construction:
    """Errs everywhere with probability p = 2 T ε / (T + 1): U3 = ε, the gap p (T − 1)."""
    return _construct("on-Q", loop(horizon), _probability(epsilon, 2 * horizon / (horizon + 1)), where="all")


def unicycle_classification(kappa: float, horizon: int) -> Construction:
    """l(s_1) = κ, an error probability of κ/2: a gap of order κ T² while κ T is small."""
    return _construct("on-Q", unicycle(horizon), _probability(kappa, 0.5), where="all")


def loop_classification(kappa: float, horizon: int) -> Construction:
    """l = κ in every state: the gap κ (T − 1) / 2."""
    return _construct("on-Q", loop(horizon), _probability(kappa, 0.5), where="all")


def _probability(error: float, times: float) -> float:
    check_positive(error=error)
    if error * times > 1:
        raise SettingError(
            f"error is {error}: choose at most {1 / times:g}, so that {times:g} · error is a probability"
        )
    return error * times


def _construct(moments: Moments, example: Example, p: float, where: str | int) -> Construction:
    return _evaluated(moments, example, erring(example, p, where))


def _evaluated(moments: Moments, example: Example, learner: np.ndarray) -> Construction:
    payoffs, gap = _payoffs_and_gap(example.mdp, example.expert, learner, example.reward)
    return Construction(moments, example, learner, float(payoffs[moments]), float(gap))


@over_batches
def _payoffs_and_gap(mdp: FiniteMDP, expert: Table, policy: Table, reward: Table) -> tuple[dict[Moments, Array], Array]:
    payoffs = {of: make(mdp, expert).sup(Game(of, mdp, expert).difference(policy)) for of, make in BOXES.items()}
    return payoffs, imitation_gap(mdp, reward, expert, policy)


def slope(horizons: Sequence[int], gaps: Sequence[float]) -> float:
    """The exponent of T in the gap: the slope of a least-squares fit of log gap to log T."""
    x, y = np.asarray(horizons, float), np.asarray(gaps, float)
    if x.shape != y.shape or len(set(x.tolist())) < 2:
        raise SettingError(
            f"{len(y)} gaps at horizons {list(horizons)}: one gap per horizon, at two or more, is needed"
        )
    if not ((x > 0).all() and (y > 0).all()):
        raise SettingError(f"gaps are {list(gaps)} at horizons {list(horizons)}: all must be above 0")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def random_instances(
    seed: int, count: int, states: int, actions: int, horizon: int
) -> tuple[FiniteMDP, np.ndarray, np.ndarray, np.ndarray]:
    """Random MDPs, experts, learners and rewards for `measure`.

    Half of the experts are deterministic. A learner mixes its expert with a random policy, with a random weight. A
    third of the rewards is uniform in [−1, 1], a third is −1 or 1, and a third is the worst case for the learner.
    """
    check_whole(0, seed=seed)
    check_whole(1, count=count, states=states, actions=actions, horizon=horizon)
    rng = np.random.default_rng(seed)
    shape = (count, horizon, states)
    mdp = FiniteMDP(
        rng.dirichlet(np.full(states, 0.3), (count, states, actions)), rng.dirichlet(np.ones(states), count), horizon
    )
    stochastic, other = rng.dirichlet(np.full(actions, 0.5), (2, *shape))
    certain = np.eye(actions)[rng.integers(actions, size=shape)]
    expert = np.where((np.arange(count) % 2 == 0)[:, None, None, None], certain, stochastic)
    share = rng.uniform(0.01, 1, (count, 1, 1, 1)) ** 2
    learner = (1 - share) * expert + share * other
    anything = rng.uniform(-1, 1, (*shape, actions))
    worst = np.sign(np.asarray(occupancy(mdp, expert)) - np.asarray(occupancy(mdp, learner)))
    reward = np.choose((np.arange(count) % 3)[:, None, None, None], [anything, np.sign(anything), worst])
    return mdp, expert, learner, reward
