"""Random finite MDPs with experts and learners, and classes of moment functions on them."""

import numpy as np

from understudy.tabular import FiniteMDP
from understudy.tabular.moments import induced, kernel_ball, q_box, reward_box, span

MOMENTS = ("reward", "off-Q", "on-Q")


def random_game(seed, states=4, actions=3, horizon=6):
    """An MDP whose last state has a single action, an expert, a learner and a table of numbers in [-1, 1]."""
    rng = np.random.default_rng(seed)
    available = np.ones((states, actions), bool)
    available[-1, 1:] = False
    mdp = FiniteMDP(
        rng.dirichlet(np.ones(states), (states, actions)), rng.dirichlet(np.ones(states)), horizon, available
    )
    policies = rng.dirichlet(np.full(actions, 0.5), (2, horizon, states)) * available
    expert, learner = policies / policies.sum(-1, keepdims=True)
    return mdp, expert, learner, rng.uniform(-1, 1, mdp.shape)


def moment_classes(mdp, expert, seed=0):
    """One class of each kind."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(mdp.states * mdp.actions, 2))
    gram = np.exp(-((points[:, None] - points[None]) ** 2).sum(-1))
    return {
        "reward": reward_box(mdp),
        "stationary": reward_box(mdp, stationary=True),
        "q": q_box(mdp),
        "induced": induced(mdp, expert),
        "span": span(mdp, rng.normal(size=(mdp.states, mdp.actions, 3)), 2.0),
        "kernel": kernel_ball(mdp, gram),
    }
