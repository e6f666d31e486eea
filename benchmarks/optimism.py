"""SAC with and without optimism as the RL player of HyPE on Pendulum.

    python benchmarks/optimism.py       # docs/results/optimism.csv

10 bundled demonstrations, small networks, returns of 10 episodes of the final policy. The two players differ in the
number of critics as well, so a third has the same ensemble and takes its mean (κ = 0). No setting was tuned.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import understudy as us
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.train.tables import write_csv

COLUMNS = ["env", "algorithm", "player", "seed", "steps", "mean_return", "payoff", *PROVENANCE]
PLAYERS: dict[str, dict[str, Any]] = {
    "two critics, the smaller": {},
    "four critics, their mean": {"critics": 4, "optimism": 0.0},
    "four critics, optimistic": {"critics": 4, "optimism": 1.0},
}


@dataclass(frozen=True)
class Options:
    rounds: int = 16
    """Rounds of 1,280 environment steps."""
    seeds: int = 3
    """Seeds of each player."""
    out: str = "docs/results/optimism.csv"
    """The file."""


def main(options: Options) -> None:
    rows: list[list[Any]] = []
    for name, changes in PLAYERS.items():
        player = us.hype().sac
        settings = {"hidden": (64, 64), "gradient_steps": 32, **changes}
        learner = us.hype(
            sac={**{field: getattr(player, field) for field in ("lr", "discount", "tau")}, **settings},
            rounds=options.rounds,
            discriminator_hidden=(64, 64),
        )
        result = us.imitate(learner, us.load("Pendulum"), "Pendulum", episodes=[10], seeds=options.seeds)
        returns = result.evaluate("Pendulum", episodes=10).returns.mean(1)
        payoff = result.metrics["payoff"][:, -1]
        print(name, np.round(returns, 1), flush=True)
        steps = int(result.metrics["env_steps"][0, -1])
        for seed, (value, one) in enumerate(zip(returns, payoff, strict=True)):
            made = [round(float(value), 2), round(float(one), 4), *provenance_columns()]
            rows.append(["Pendulum", "hype", name, seed, steps, *made])
        write_csv(Path(options.out), COLUMNS, rows)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
