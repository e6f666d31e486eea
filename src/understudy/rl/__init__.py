"""Policy players that best-respond in an environment: SAC, soft Q-learning, PPO."""

from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

__all__ = ["PPO", "SAC", "SoftQ"]
