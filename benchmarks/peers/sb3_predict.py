"""Time of one deterministic action of Stable-Baselines3's SAC, run by benchmarks/deploy.py in its own environment.

    python benchmarks/peers/sb3_predict.py OBS ACT WIDTH CALLS BLOCKS

It prints JSON. No environment is stepped, and nothing is trained.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC


class Shapes(gymnasium.Env):
    """An environment that has only its spaces."""

    def __init__(self, obs: int, act: int):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (act,), np.float32)


def main() -> None:
    warnings.simplefilter("ignore")
    obs, act, width, calls, blocks = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = {"net_arch": [width, width]}
    model = SAC("MlpPolicy", Shapes(obs, act), buffer_size=1, policy_kwargs=layers, device="cpu")
    observation = np.random.default_rng(0).normal(size=obs).astype(np.float32)
    model.predict(observation, deterministic=True)
    spent = float("inf")
    for _ in range(blocks):
        began = time.perf_counter()
        for _ in range(calls):
            model.predict(observation, deterministic=True)
        spent = min(spent, time.perf_counter() - began)
    versions = f"stable_baselines3={version('stable_baselines3')} torch={torch.__version__}"
    print(json.dumps({"us": spent / calls * 1e6, "versions": versions}))


if __name__ == "__main__":
    main()
