"""The `imitation` package's tabular MCE IRL, run by benchmarks/tabular.py in its own environment.

The two exchange arrays in a folder: `mce.npz` has the MDP, a reward for each state and the expert's visits. The results
are in `mce-imitation.npz`.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from imitation.algorithms.mce_irl import MCEIRL, mce_occupancy_measures, mce_partition_fh
from imitation.rewards.reward_nets import BasicRewardNet
from imitation.util.logger import configure
from seals.base_envs import TabularModelPOMDP

warnings.filterwarnings("ignore")


def main() -> None:
    """Arguments: the folder, evaluations to time. Prints JSON: ms an evaluation, seconds and steps of a fit."""
    folder, repeats = Path(sys.argv[1]), int(sys.argv[2])
    with np.load(folder / "mce.npz") as given:
        env = TabularModelPOMDP(
            transition_matrix=given["transitions"],
            observation_matrix=np.eye(len(given["initial"]), dtype=np.float32),
            reward_matrix=given["reward"],
            horizon=int(given["horizon"]),
            initial_state_dist=given["initial"],
        )
        visits = given["visits"]
    _, _, policy = mce_partition_fh(env)
    states, _ = mce_occupancy_measures(env, pi=policy)
    began = time.perf_counter()
    for _ in range(repeats):
        mce_occupancy_measures(env)
    evaluation = (time.perf_counter() - began) / repeats * 1e3

    torch.manual_seed(0)
    net = BasicRewardNet(env.observation_space, env.action_space, use_action=False, hid_sizes=[])  # linear
    counted = Counted()
    learner = MCEIRL(
        visits, env, net, np.random.default_rng(0), counted.adam, log_interval=None, grad_l2_eps=0.0,
        custom_logger=configure(format_strs=[]),
    )  # fmt: skip
    began = time.perf_counter()
    learner.train(max_iter=10_000)
    fit = time.perf_counter() - began
    np.savez(folder / "mce-imitation.npz", policy=policy, states=states, fitted=learner.policy.pi)
    versions = f"imitation={version('imitation')} torch={torch.__version__}"
    print(json.dumps({"ms": evaluation, "fit": fit, "steps": counted.steps, "versions": versions}))


class Counted:
    """Adam, and the steps that it took."""

    steps = 0

    def adam(self, *args, **kwargs):
        optimizer = torch.optim.Adam(*args, **kwargs)

        def count(*_):
            self.steps += 1

        optimizer.register_step_post_hook(count)
        return optimizer


main()
