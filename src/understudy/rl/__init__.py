"""Policy players that best-respond in an environment: in a game, or by themselves (`learn`)."""

from understudy.rl.learn import Learned, learn
from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

__all__ = ["PPO", "SAC", "Learned", "SoftQ", "learn"]
