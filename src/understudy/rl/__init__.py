"""RL players: they improve a policy from experience and rewards, in an imitation game or on the task reward.

Imports game, policies and core. Public: `SAC` (continuous actions), `SoftQ` (discrete actions), `PPO` (both). A new
player subclasses `rl.base.RLPlayer`. `rl.inverse_q` makes a player without rewards of the first two. GPS
uses `rl.lqr`, `rl.linear_dynamics`, `rl.trajectories` and `rl.controllers`.
"""

from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

__all__ = ["PPO", "SAC", "SoftQ"]
