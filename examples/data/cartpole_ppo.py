"""Train the Stable-Baselines3 model of `06_sb3_expert.py`: PPO on CartPole-v1, two layers of 32.

Run it in a Python with stable-baselines3 and torch: `python cartpole_ppo.py`. The example needs neither.
"""

from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

UNNEEDED = ["lr_schedule", "clip_range", "ep_info_buffer", "ep_success_buffer", "_last_obs", "_last_episode_starts"]
"""Left out: loading makes it again, and functions would be stored with the paths of their files."""

settings = {"n_steps": 512, "learning_rate": 1e-3, "policy_kwargs": {"net_arch": [32, 32]}}
model = PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings)
model.learn(50_000)
print(evaluate_policy(model, model.get_env(), n_eval_episodes=25))
model.save(Path(__file__).with_suffix(".zip"), exclude=UNNEEDED)
