"""Gradient steps of Stable-Baselines3's SAC, run by benchmarks/sac.py in its own environment.

    python benchmarks/peers/sb3_sac.py SETTINGS THREADS

SETTINGS is JSON: shapes, batch size and Adam's settings. It fills a replay buffer, trains as `learn` does between
environment steps, and prints JSON. No environment is stepped.
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
from stable_baselines3.common.logger import configure

SECONDS = 4.0


class Shapes(gymnasium.Env):
    """An environment that has only its spaces."""

    def __init__(self, obs: int, act: int):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (act,), np.float32)


def main() -> None:
    warnings.simplefilter("ignore")
    settings, threads = json.loads(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = SAC(
        "MlpPolicy",
        Shapes(settings["obs"], settings["act"]),
        learning_rate=settings["lr"],
        gamma=settings["discount"],
        tau=settings["tau"],
        buffer_size=settings["capacity"],
        batch_size=settings["batch"],
        policy_kwargs={"net_arch": settings["hidden"]},
        device="cpu",
    )
    model.set_logger(configure(None, []))
    random, buffer = np.random.default_rng(0), model.replay_buffer
    for rows in (buffer.observations, buffer.next_observations, buffer.rewards):
        rows[:] = random.normal(size=rows.shape)
    buffer.actions[:] = random.uniform(-1, 1, buffer.actions.shape)
    buffer.full = True
    model.train(settings["steps"], settings["batch"])
    steps, spent, worked = 0, 0.0, time.process_time()
    while spent < SECONDS:
        began = time.perf_counter()
        model.train(settings["steps"], settings["batch"])
        steps, spent = steps + settings["steps"], spent + time.perf_counter() - began
    share = (time.process_time() - worked) / (spent * threads)
    # A step that went astray would still be timed: say so instead.
    if not all(torch.isfinite(values).all() for values in model.policy.parameters()):
        sys.exit(f"the weights are not finite after {steps} steps")
    versions = f"stable_baselines3={version('stable_baselines3')} torch={torch.__version__}"
    layers = [list(p.shape) for p in model.critic.parameters() if p.ndim > 1]
    print(json.dumps({"ms": spent / steps * 1e3, "share": share, "layers": layers, "versions": versions}))


if __name__ == "__main__":
    main()
