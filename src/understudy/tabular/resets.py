"""Searching for a policy as good as the expert, with and without episodes that begin at the expert's states.

The reward of a game is known only where the learner has been. Here it is 1 for the expert's last action in the expert's
last state and 0 elsewhere, so nothing guides the search before the goal is reached (section 7.2, TREE). Count episodes
until the learner knows actions that lead from the first state to the goal:

    search                    episodes
    each path once            as many as there are sequences of actions, at worst                                    (1)
    random actions            1 / V_0 of uniform actions, expected                                                   (2)
    random, with resets       E_T below, expected                                                                    (3)
    PSDP                      one for each action in each of the expert's states, backward in time                   (4)

(3) is FILTER's: an episode begins at the expert's state of time t with probability α / T each, otherwise at t = 0. The
learner acts at random until it is in a state from which it knows the way. Let it know the way from the expert's states
of times k, ..., T − 1, and let v_k(t) be the probability that an episode from time t reaches the goal. If it does, the
way is known from t on. With p_t the probability that an episode begins at t, and E_0 = 0,

    E_k = (1 + Σ_{t < k} p_t v_k(t) E_t) / Σ_{t < k} p_t v_k(t)

In TREE (1) and (2) are |A|^T. (4) is |A| T, and (3) is of order |A| T² / α. (4) chooses where each episode begins, (3)
draws it. All numbers are exact.

Reference: Swamy, Wu, Choudhury, Bagnell and Wu, "Inverse Reinforcement Learning without Reinforcement Learning" (2023).
"""

import numpy as np

from understudy.core.errors import SettingError
from understudy.tabular.examples import Example, reachable, successor_table
from understudy.tabular.planning import uniform, values


def expert_states(example: Example) -> np.ndarray:
    """The state of a deterministic expert at each time."""
    visited = reachable(example, example.expert[0] > 0)
    if any(len(states) > 1 for states in visited):
        raise SettingError(f"{example.name} has an expert that is in several states at a time: a single path is needed")
    return np.concatenate(visited)


def goal(example: Example) -> np.ndarray:
    """The reward: 1 for the expert's last action in its last state, and 0 elsewhere."""
    reward = np.zeros(example.mdp.shape)
    last = expert_states(example)[-1]
    reward[-1, last] = example.expert[-1, last]
    return reward


def path_count(example: Example) -> int:
    """(1): the sequences of T available actions."""
    available, following = np.asarray(example.mdp.available), successor_table(example)
    paths = np.ones(len(available))
    for _ in range(example.mdp.horizon):
        paths = np.where(available, paths[following], 0).sum(-1)
    return int(paths @ np.asarray(example.mdp.initial))


def expected_episodes(example: Example, start_share: float = 0.0) -> float:
    """(3): the expected episodes of a random search, if α of them begin at the expert's states. α = 0 is (2)."""
    if isinstance(start_share, bool) or not 0 <= start_share <= 1:
        raise SettingError(f"start_share is {start_share!r}: a number from 0 to 1 is needed")
    horizon, path, reward = example.mdp.horizon, expert_states(example), goal(example)
    begins = np.full(horizon, start_share / horizon)
    begins[0] += 1 - start_share
    policy = np.array(uniform(example.mdp))
    episodes = np.zeros(horizon + 1)
    # p_t v_k(t) and E_t for t < k come first: E_1, E_2, ..., while v_k needs a way that is known from k on.
    for known in range(1, horizon + 1):
        informed = policy.copy()
        informed[np.arange(known, horizon), path[known:]] = example.expert[np.arange(known, horizon), path[known:]]
        reached = np.asarray(values(example.mdp, reward, informed))[np.arange(known), path[:known]]
        found = begins[:known] * reached
        episodes[known] = (1 + found @ episodes[:known]) / found.sum()
    return float(episodes[horizon])


def psdp_episodes(example: Example) -> int:
    """(4): one episode for each available action in each of the expert's states."""
    return int(np.asarray(example.mdp.available)[expert_states(example)].sum())
