"""Write the Stable-Baselines3 models of the tests, with SB3's own predictions.

    python tools/sb3_fixtures.py tests/data_files/sb3

Run it in an environment with stable-baselines3, sb3-contrib and torch; the tests need none of them. Each model is a
small network with random weights, saved with `model.save`. NAME.npz holds 20 observations and the deterministic actions
that `model.predict` returns for them; for a model with VecNormalize also its statistics, as docs/experts.md shows.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import TQC
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

ARCH = {"net_arch": [8, 8]}
MODELS = {
    "sac": (SAC, "Pendulum-v1", ARCH, {"buffer_size": 10}),
    "sac-sde-tanh": (SAC, "Pendulum-v1", ARCH | {"activation_fn": torch.nn.Tanh}, {"buffer_size": 10, "use_sde": True}),
    "tqc": (TQC, "Pendulum-v1", ARCH, {"buffer_size": 10}),
    "td3": (TD3, "Pendulum-v1", ARCH, {"buffer_size": 10}),
    "ppo": (PPO, "Pendulum-v1", ARCH, {}),
    "ppo-sde-squashed": (PPO, "Pendulum-v1", ARCH | {"squash_output": True}, {"use_sde": True}),
    "ppo-discrete": (PPO, "CartPole-v1", ARCH, {}),
    "a2c": (A2C, "CartPole-v1", ARCH, {}),
    "dqn": (DQN, "CartPole-v1", ARCH, {"buffer_size": 10}),
    "ppo-normalized": (PPO, "Pendulum-v1", ARCH | {"activation_fn": torch.nn.ReLU}, {}),
    "ppo-elu": (PPO, "CartPole-v1", ARCH | {"activation_fn": torch.nn.ELU}, {}),
}
"""Name: class, environment, policy_kwargs, further settings."""
CLIPPED = {"ppo": 2.0, "sac-sde-tanh": 2 * np.tanh(2.0)}
"""Models with an action at this limit."""


def varied_actions(name: str, model: Any, obs: np.ndarray) -> np.ndarray:
    """Set random weights for which the actions vary, and some are clipped where that is to be tested."""
    for seed in range(1000):  # new networks answer with almost the same action everywhere
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.policy.parameters():
                parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator))
        actions, _ = model.predict(obs, deterministic=True)
        limit = CLIPPED.get(name)
        varied = np.std(actions.astype(float)) > 0.3
        if varied and (limit is None or np.isclose(np.abs(actions).max(), limit, atol=1e-6)):
            return actions
    raise RuntimeError(f"{name}: no seed gives actions that vary")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (kind, env, policy, settings)) in enumerate(MODELS.items()):
        venv = DummyVecEnv([lambda env=env: gymnasium.make(env)])
        random, extra = np.random.default_rng(number), {}
        if name.endswith("normalized"):
            venv = VecNormalize(venv, clip_obs=2.0)
            venv.obs_rms.mean, venv.obs_rms.var = random.normal(size=3), random.uniform(0.01, 1, 3)
            extra = {
                "obs_mean": venv.obs_rms.mean,
                "obs_var": venv.obs_rms.var,
                "clip_obs": venv.clip_obs,
                "epsilon": venv.epsilon,
            }
        model = kind("MlpPolicy", venv, policy_kwargs=dict(policy), device="cpu", seed=number, **settings)
        obs = random.normal(size=(20, *venv.observation_space.shape)).astype(np.float32)
        seen = venv.normalize_obs(obs) if isinstance(venv, VecNormalize) else obs
        actions = varied_actions(name, model, seen)
        model.save(folder / f"{name}.zip")
        np.savez(folder / f"{name}.npz", observations=obs, actions=actions, **extra)


if __name__ == "__main__":
    main()
