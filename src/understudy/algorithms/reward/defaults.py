"""Settings that reward-moment algorithms share."""

from dataclasses import replace
from typing import Any

from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

SOFT_Q = SoftQ(discount=0.98, tau=0.02, target_entropy=0.1)
"""γ and τ are SAC's of Tables 9 and 10. Values of an earlier f decay in 1 / (τ (1 − γ)) = 2,500 gradient steps, two
rounds. The temperature is adjusted: rewards shrink as steps are added, and with a fixed temperature only entropy would
count in the end (docs/absorbing.md).
"""
QUICK_PLAYERS = {"sac": SAC(hidden=(64, 64)), "soft_q": replace(SOFT_Q, hidden=(64, 64))}
"""The RL players of the preset "quick"."""
STOP_REASONS = ("the payoff fell to delta", "the critic's loss exploded")
SMALL: dict[str, Any] = {
    "rounds": 2,
    "round_steps": 16,
    "frequency": 8,
    "random_steps": 4,
    "batch_size": 8,
    "clone_steps": 2,
    "sac": SAC(hidden=(8,), gradient_steps=2),
    "soft_q": SoftQ(hidden=(8,), gradient_steps=2, temperature=1.0),  # so high that no probability is 0
}
"""Settings for the protocol tests, with off-policy players."""
