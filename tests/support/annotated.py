"""Runs every algorithm and RL player for a moment with the shapes and types of annotations checked at run time.

A program of its own: the checks refuse wrong settings before the library does, which other tests look at.
"""

from jaxtyping import TypeCheckError, install_import_hook

ROOMS = ("game", "policies", "rl", "algorithms", "envs", "collect")
install_import_hook([f"understudy.{room}" for room in ROOMS], "beartype.beartype")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import understudy as us  # noqa: E402
from support.envs import Line  # noqa: E402
from understudy.game.sampling import Rows  # noqa: E402
from understudy.rl import PPO, SAC, SoftQ  # noqa: E402


def main() -> None:
    try:
        Rows.where(jnp.zeros((2, 2), bool))
    except TypeCheckError:
        print("a wrong shape is noticed", flush=True)
    for discrete in (False, True):
        env = Line(discrete)
        demos = us.record(env, env.expert(), episodes=4)
        kind = "discrete" if discrete else "continuous"
        for name, cls in us.ALGORITHMS.items():
            if kind in cls.card.actions:
                needs = {"environment": {"env": env}, "expert": {"expert": env.expert()}}
                given = {key: value for need in cls.card.needs for key, value in needs.get(need, {}).items()}
                us.imitate(cls(**cls.small), demos, **given)
                print(name, kind, flush=True)
    small = {"steps": 32, "round_steps": 16, "batch_size": 8}
    us.learn(SAC(hidden=(8,), gradient_steps=2), Line(), frequency=8, random_steps=8, **small)
    us.learn(SoftQ(hidden=(8,), gradient_steps=2), Line(True), frequency=8, random_steps=8, **small)
    us.learn(PPO(hidden=(8,), epochs=1, minibatch=8), Line(), envs=2, frequency=16, **small)
    print("players", np.asarray(jax.device_count()) > 0, flush=True)


if __name__ == "__main__":
    main()
