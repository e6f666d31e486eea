"""A gradient step of the `imitation` package's behavioral cloning, run by benchmarks/bc.py in its own environment.

The package needs an older Gymnasium than understudy, so the two run in separate processes.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version

import gymnasium
import numpy as np
import torch
from imitation.algorithms.bc import BC
from imitation.data.types import Transitions
from imitation.util.logger import configure

warnings.filterwarnings("ignore")


def main() -> None:
    """Arguments: steps to time, batch size, observation and action dimensions. Prints JSON: milliseconds per step."""
    steps, batch, obs_size, act_size = map(int, sys.argv[1:5])
    random = np.random.default_rng(0)
    count = 5000
    obs = random.normal(size=(count, obs_size)).astype(np.float32)
    act = random.uniform(-1, 1, (count, act_size)).astype(np.float32)
    learner = BC(
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (obs_size,)),
        action_space=gymnasium.spaces.Box(-1, 1, (act_size,)),
        rng=random,
        demonstrations=Transitions(
            obs=obs, acts=act, infos=np.array([{}] * count), next_obs=obs, dones=np.zeros(count, bool)
        ),
        batch_size=batch,
        custom_logger=configure(format_strs=[]),
    )
    quiet = {"progress_bar": False, "log_interval": 10**9}
    learner.train(n_batches=100, **quiet)
    began = time.perf_counter()
    learner.train(n_batches=steps, **quiet)
    spent = (time.perf_counter() - began) / steps * 1e3
    layers = [tuple(p.shape) for p in learner.policy.mlp_extractor.policy_net.parameters() if p.ndim == 2]
    versions = f"imitation={version('imitation')} torch={torch.__version__}"
    print(json.dumps({"ms": spent, "layers": layers, "versions": versions}))


main()
