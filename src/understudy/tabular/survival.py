"""No survival bonus by accident: what a learned reward's sign does in a task that ends early, and its cure, exactly.

The stay-or-end chain: alive, one stays, or ends and is in the end state for good. What there is to imitate is how long
the expert lives. The learner's reward is made from two occupancies, d_E and d_π: d(s, a) = (1/T) Σ_t d_t(s, a) is the
share of T steps that a pair takes up, and sums to one over all pairs. With D = d_E / (d_E + d_π):

    form                r(d_E, d_π)            is −∂g/∂d_π of the convex               c = r(d, d)
    AdRIL               d_E − d_π              ½ Σ (d_π − d_E)²                            0
    SQIL                D                      −Σ d_E log(d_π + d_E)                       ½
    SQIL, labels alone  1                      (nothing: it does not look at d_π)          1
    GAIL, log D         log D                  Σ (d_π + d_E) log((d_π + d_E)/d_E) − d_π    −log 2
    GAIL, −log(1 − D)   −log(1 − D)            Σ d_π log(1 − D) + d_E log D                log 2
    AIRL                log D − log(1 − D)     Σ d_π log(d_π / d_E) − d_π                  0

The sign convention is that of `payoffs`: f is a cost, and these are rewards, r = −f. Where d_π = d_E a form is the
constant c at every pair. U1 does not know f from f + c, and g is smallest at d_E, **among d_π that sum to one**. They
do if an ended episode goes on, in a state that follows itself until T and has a reward like any other. If the return
stops with the episode instead, c is paid for each step of life: a bonus, or a fine.

The game is AdRIL's, for every form:

    1. d̄ ← the occupancy of the policy that takes every action alike
    2. for n = 1, 2, ...
    3.     r ← r(d_E, d̄)
    4.     π_n ← argmax_π E_π Σ_t r(s_t, a_t) + α H(π)                one soft backward pass
    5.     d̄ ← d̄ + (d^{π_n} − d̄) / (n + 1)                           the average over all rounds

which is Frank and Wolfe's method on g, but for the entropy, whose weight α must be small beside what r adds up to.

Reference: Kostrikov, Agrawal, Dwibedi, Levine and Tompson, "Discriminator-Actor-Critic: Addressing Sample Inefficiency
and Reward Bias in Adversarial Imitation Learning" (2019). SQIL: Reddy, Dragan and Levine (2020). GAIL: Ho and Ermon
(2016). AIRL: Fu, Luo and Levine (2018). The paper has AdRIL, and SQIL as the reward that is never updated.

Deviations: nothing is sampled. SQIL's labels are 1 on the expert's steps and 0 on the learner's; D is what a regression
on as many of the one as of the other sees, where samples share their pair. Where they never do, as with continuous
states, the labels stand as they are, which is what "labels alone" has: 1 wherever the expert goes, here everywhere.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_choice, check_fraction, check_positive, check_whole, unknown
from understudy.tabular.mdp import FiniteMDP, Table, exact, occupancy, soft_response, uniform

ALIVE, ENDED = 0, 1
"""The chain's states."""
STAY, END = 0, 1
"""Its actions."""
AVAILABLE = ((True, True), (True, False))
"""The end state has nothing to choose, so that no entropy is to be had there."""
Pairs = Float[Array, "s a"]

FORMS: dict[str, Callable[[Pairs, Pairs], Pairs]] = {
    "AdRIL": lambda expert, learner: expert - learner,
    "SQIL": lambda expert, learner: expert / (expert + learner),
    "SQIL, labels alone": lambda expert, learner: jnp.ones_like(expert),
    "GAIL, log D": lambda expert, learner: jnp.log(expert) - jnp.log(expert + learner),
    "GAIL, −log(1 − D)": lambda expert, learner: jnp.log(expert + learner) - jnp.log(learner),
    "AIRL": lambda expert, learner: jnp.log(expert) - jnp.log(learner),
}
"""r(d_E, d_π), pair by pair, for pairs that both visit."""

Ends = Literal["absorbing", "episodes", "steps"]
ENDS: tuple[Ends, ...] = ("absorbing", "episodes", "steps")
"""What follows an episode's end, and what a side's occupancy sums to over what is recorded of it.

absorbing    the end state, until T, with the form's own reward there; one
episodes     nothing; its expected length over T, as with as many episodes of the one side as of the other
steps        nothing; one, as with as many steps of the one side as of the other
"""


class Survival(NamedTuple):
    """How a game on the chain ended."""

    visited: Table
    """d̄_t(s, a), averaged over all rounds."""
    reward: Pairs
    """What it was paid in the last round."""
    length: float
    """The learner's expected steps of life, those of d̄."""
    expert_length: float


class SurvivalRow(NamedTuple):
    """A form's constant, and the expected lengths: the expert's, and the learner's by what follows an end."""

    form: str
    constant: float
    expert: float
    episodes: float
    steps: float
    absorbing: float


def stay_or_end(horizon: int = 20) -> FiniteMDP:
    """The chain: alive, one stays or ends, and the end state follows itself. (UNICYCLE is drawn alike.)"""
    check_whole(2, horizon=horizon)
    return FiniteMDP(np.array([[ALIVE, ENDED], [ENDED, ENDED]]), [1.0, 0.0], horizon, AVAILABLE)


def ending(q: float, horizon: int = 20) -> np.ndarray:
    """The chain's policy that ends with probability q at each step of its life."""
    check_positive(q=q)
    check_fraction(q=q)
    check_whole(2, horizon=horizon)
    return np.broadcast_to([[1 - q, q], [1.0, 0.0]], (horizon, 2, 2))


def expected_length(visited: Any) -> float:
    """E of the steps taken alive, Σ_t d_t(alive), from d_t(s, a)."""
    return float(np.asarray(visited)[:, ALIVE].sum())


def form_reward(form: str, expert: Any, learner: Any, ends: Ends = "absorbing") -> np.ndarray:
    """A form's reward r[s, a] on the chain, from both sides' occupancies d_t(s, a); 0 where nothing is recorded."""
    check_choice(ENDS, ends=ends)
    for name, visited in (("expert", expert), ("learner", learner)):
        if np.ndim(visited) != 3 or np.shape(visited)[1:] != (2, 2):
            raise SpecError(f"the {name}'s occupancy has shape {np.shape(visited)}: (steps, 2, 2) is needed")
    reward = np.asarray(_form_reward(_index(form), ENDS.index(ends), expert, learner))
    if not np.isfinite(reward).all():
        raise SpecError(f"the reward of '{form}' is {reward.tolist()}: both sides must stay and end now and then")
    return reward


def survival_game(
    form: str,
    q: float,
    ends: Ends = "absorbing",
    horizon: int = 20,
    alpha: float = 0.01,
    rounds: int = 1000,
) -> Survival:
    """The game between a reward of this form and the soft best response to it; the expert ends with probability q."""
    check_choice(ENDS, ends=ends)
    return _games([(form, q, ends)], horizon, alpha, rounds)[0]


def survival_table(
    q: Sequence[float] = (0.5, 0.03), horizon: int = 20, alpha: float = 0.01, rounds: int = 1000
) -> tuple[SurvivalRow, ...]:
    """All forms against experts that end with these probabilities, one row each; all games are one program."""
    settings = [(form, probability, ends) for form in FORMS for probability in q for ends in ENDS]
    games = dict(zip(settings, _games(settings, horizon, alpha, rounds), strict=True))
    constants = dict(zip(FORMS, _constants(), strict=True))
    rows = []
    for form in FORMS:
        for probability in q:
            found = {ends: games[form, probability, ends] for ends in ENDS}
            lengths = {ends: game.length for ends, game in found.items()}
            expert = found["absorbing"].expert_length
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
        """d(s, a) of what is recorded; 1 for other pairs, where any number will do."""
        mean = jnp.where(recorded, jnp.asarray(visited).mean(0), 0.0)
        total = jnp.where(ends == ENDS.index("steps"), mean.sum(), 1.0)
        return jnp.where(recorded, mean / total, 1.0)

    rewards = jnp.stack([each(shares(expert), shares(learner)) for each in FORMS.values()])
    return jnp.where(recorded, rewards[form], 0.0)


@exact
def _constants() -> Float[Array, " forms"]:
    """c of each form, which is r(d, d) whatever d is."""
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
