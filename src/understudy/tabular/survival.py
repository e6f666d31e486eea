"""Survival bias: how the sign of a learned reward changes episode lengths in a task that ends early, computed exactly.

The stay-or-end chain has two states. In state "alive" the agent stays or ends; the end state is absorbing. The learner
should imitate how long the expert lives. Its reward is a function of two occupancies, d_E and d_π:
d(s, a) = (1/T) Σ_t d_t(s, a), the fraction of the T steps at a pair, which sums to one. With D = d_E / (d_E + d_π):

    form                r(d_E, d_π)            equals −∂g/∂d_π of the convex g         c = r(d, d)
    AdRIL               d_E − d_π              ½ Σ (d_π − d_E)²                            0
    SQIL                D                      −Σ d_E log(d_π + d_E)                       ½
    SQIL, labels alone  1                      (none: it does not depend on d_π)           1
    GAIL, log D         log D                  Σ (d_π + d_E) log((d_π + d_E)/d_E) − d_π    −log 2
    GAIL, −log(1 − D)   −log(1 − D)            Σ d_π log(1 − D) + d_E log D                log 2
    AIRL                log D − log(1 − D)     Σ d_π log(d_π / d_E) − d_π                  0

The sign convention is that of `payoffs`: f is a cost and r = −f. At d_π = d_E a form is the constant c at every pair.
U1 is the same for f and f + c, and g is smallest at d_E **among d_π that sum to one**. They sum to one if an ended
episode continues in an absorbing state until T, with a reward like any other state. If the return stops with the
episode instead, every step alive pays c: a bonus or a penalty.

The game is AdRIL's for every form:

    1. d̄ ← the occupancy of the uniform policy
    2. for n = 1, 2, ...
    3.     r ← r(d_E, d̄)
    4.     π_n ← argmax_π E_π Σ_t r(s_t, a_t) + α H(π)                one soft backward pass
    5.     d̄ ← d̄ + (d^{π_n} − d̄) / (n + 1)                           the average over all rounds

This is the Frank-Wolfe method on g, apart from the entropy. Its weight α must be small compared to the sum of r.

Reference: Kostrikov, Agrawal, Dwibedi, Levine and Tompson, "Discriminator-Actor-Critic: Addressing Sample Inefficiency
and Reward Bias in Adversarial Imitation Learning" (2019). SQIL: Reddy, Dragan and Levine (2020). GAIL: Ho and Ermon
(2016). AIRL: Fu, Luo and Levine (2018). The paper describes AdRIL, and SQIL as a reward that is never updated.

Deviations: nothing is sampled. SQIL's labels are 1 on the expert's steps and 0 on the learner's. D is the mean label
at a pair, with equally many steps of both sides. With continuous states no two samples share a pair, so each label
stands alone. "Labels alone" is that case: 1 at every pair that the expert visits, here at all pairs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_choice, check_fraction, check_positive, check_whole, unknown
from understudy.tabular.compiling import exact
from understudy.tabular.mdp import FiniteMDP, Table
from understudy.tabular.planning import occupancy, soft_response, uniform

ALIVE, ENDED = 0, 1
"""The states of the chain."""
STAY, END = 0, 1
"""The actions of the chain."""
AVAILABLE = ((True, True), (True, False))
"""The end state has a single action, so that it adds no entropy."""
Pairs = Float[Array, "s a"]

FORMS: dict[str, Callable[[Pairs, Pairs], Pairs]] = {
    "AdRIL": lambda expert, learner: expert - learner,
    "SQIL": lambda expert, learner: expert / (expert + learner),
    "SQIL, labels alone": lambda expert, learner: jnp.ones_like(expert),
    "GAIL, log D": lambda expert, learner: jnp.log(expert) - jnp.log(expert + learner),
    "GAIL, −log(1 − D)": lambda expert, learner: jnp.log(expert + learner) - jnp.log(learner),
    "AIRL": lambda expert, learner: jnp.log(expert) - jnp.log(learner),
}
"""r(d_E, d_π) for each pair (s, a) that both sides visit."""

Ends = Literal["absorbing", "episodes", "steps"]
ENDS: tuple[Ends, ...] = ("absorbing", "episodes", "steps")
"""What follows the end of an episode, and the sum of each side's occupancy over the recorded pairs.

absorbing    the end state until T, with the form's reward; the sum is one
episodes     nothing; the sum is the expected length over T, as if both sides had equally many episodes
steps        nothing; the sum is one, as if both sides had equally many steps
"""


class Survival(NamedTuple):
    """The result of a game on the chain."""

    visited: Table
    """d̄_t(s, a), averaged over all rounds."""
    reward: Pairs
    """The reward in the last round."""
    length: float
    """The learner's expected number of steps alive, under d̄."""
    expert_length: float


class SurvivalRow(NamedTuple):
    """A form's constant c, the expert's expected length, and the learner's for each of ENDS."""

    form: str
    constant: float
    expert: float
    episodes: float
    steps: float
    absorbing: float


def stay_or_end(horizon: int = 20) -> FiniteMDP:
    """The chain: stay or end; the end state is absorbing. It has the dynamics of UNICYCLE."""
    check_whole(2, horizon=horizon)
    return FiniteMDP(np.array([[ALIVE, ENDED], [ENDED, ENDED]]), [1.0, 0.0], horizon, AVAILABLE)


def ending(q: float, horizon: int = 20) -> np.ndarray:
    """The policy that ends with probability q at each step alive."""
    check_positive(q=q)
    check_fraction(q=q)
    check_whole(2, horizon=horizon)
    return np.broadcast_to([[1 - q, q], [1.0, 0.0]], (horizon, 2, 2))


def expected_length(visited: Any) -> float:
    """The expected number of steps alive: Σ_t d_t(alive)."""
    return float(np.asarray(visited)[:, ALIVE].sum())


def form_reward(form: str, expert: Any, learner: Any, ends: Ends = "absorbing") -> np.ndarray:
    """A form's reward r[s, a] on the chain, from both sides' occupancies d_t(s, a). 0 for unrecorded pairs."""
    check_choice(ENDS, ends=ends)
    for name, visited in (("expert", expert), ("learner", learner)):
        if np.ndim(visited) != 3 or np.shape(visited)[1:] != (2, 2):
            raise SpecError(f"the {name}'s occupancy has shape {np.shape(visited)}: (steps, 2, 2) is needed")
    reward = np.asarray(_form_reward(_index(form), ENDS.index(ends), expert, learner))
    if not np.isfinite(reward).all():
        raise SpecError(
            f"the reward of '{form}' is {reward.tolist()}: both occupancies must be above 0 for staying and ending"
        )
    return reward


def survival_game(
    form: str,
    q: float,
    ends: Ends = "absorbing",
    horizon: int = 20,
    alpha: float = 0.01,
    rounds: int = 1000,
) -> Survival:
    """Play the game of one reward form against an expert that ends with probability q."""
    check_choice(ENDS, ends=ends)
    return _games([(form, q, ends)], horizon, alpha, rounds)[0]


def survival_table(
    q: Sequence[float] = (0.5, 0.03), horizon: int = 20, alpha: float = 0.01, rounds: int = 1000
) -> tuple[SurvivalRow, ...]:
    """All forms against experts that end with these probabilities: one row each. All games run in one program."""
    settings = [(form, probability, ends) for form in FORMS for probability in q for ends in ENDS]
    games = dict(zip(settings, _games(settings, horizon, alpha, rounds), strict=True))
    constants = dict(zip(FORMS, _constants(), strict=True))
    rows = []
    for form in FORMS:
        for probability in q:
            lengths = {ends: games[form, probability, ends].length for ends in ENDS}
            expert = games[form, probability, "absorbing"].expert_length
            rows.append(SurvivalRow(form, float(constants[form]), expert, **lengths))
    return tuple(rows)


def _games(settings: Sequence[tuple[str, float, Ends]], horizon: int, alpha: float, rounds: int) -> list[Survival]:
    check_positive(alpha=alpha)
    check_whole(1, rounds=rounds)
    mdp = stay_or_end(horizon)
    forms = np.array([_index(form) for form, _, _ in settings])
    ends = np.array([ENDS.index(ends) for _, _, ends in settings])
    experts = np.stack([occupancy(mdp, ending(q, horizon)) for _, q, _ in settings])
    visited, rewards = _play(mdp, forms, ends, experts, alpha, rounds)
    return [
        Survival(d, reward, expected_length(d), expected_length(expert))
        for d, reward, expert in zip(visited, rewards, experts, strict=True)
    ]


def _index(form: str) -> int:
    if form not in FORMS:
        raise unknown("reward form", form, FORMS)
    return list(FORMS).index(form)


@exact
def _form_reward(form: Array, ends: Array, expert: Table, learner: Table) -> Pairs:
    recorded = jnp.asarray(AVAILABLE).at[ENDED, STAY].set(ends == ENDS.index("absorbing"))

    def shares(visited: Table) -> Pairs:
        """d(s, a) of the recorded pairs; 1 for others, which are masked later."""
        mean = jnp.where(recorded, jnp.asarray(visited).mean(0), 0.0)
        total = jnp.where(ends == ENDS.index("steps"), mean.sum(), 1.0)
        return jnp.where(recorded, mean / total, 1.0)

    rewards = jnp.stack([each(shares(expert), shares(learner)) for each in FORMS.values()])
    return jnp.where(recorded, rewards[form], 0.0)


@exact
def _constants() -> Float[Array, " forms"]:
    """c = r(d, d) of each form; it does not depend on d."""
    return jnp.stack([each(jnp.ones(()), jnp.ones(())) for each in FORMS.values()])


@exact
def _play(
    mdp: FiniteMDP, forms: Array, ends: Array, experts: Float[Array, "n t s a"], alpha: Array, rounds: Array
) -> tuple[Float[Array, "n t s a"], Float[Array, "n s a"]]:
    start = occupancy(mdp, uniform(mdp))  # line 1

    def one(form: Array, end: Array, expert: Table) -> tuple[Table, Pairs]:
        def play(n: Array, carry: tuple[Table, Pairs]) -> tuple[Table, Pairs]:
            average, _ = carry
            reward = _form_reward(form, end, expert, average)  # line 3
            response = soft_response(mdp, jnp.broadcast_to(-reward, mdp.shape), alpha)  # line 4
            return average + (occupancy(mdp, response) - average) / (n + 1), reward  # line 5

        return jax.lax.fori_loop(1, rounds + 1, play, (start, jnp.zeros(mdp.shape[1:])))  # line 2

    return jax.vmap(one)(jnp.asarray(forms), jnp.asarray(ends), jnp.asarray(experts))
