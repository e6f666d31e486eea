"""Experts of our own: a player of `rl` learns a task by the environment's own reward, and the best seed is kept.

    1. train a policy for each seed (`rl.learn`)
    2. play each of them without chance, and choose the seed of the highest mean return
    3. play the chosen one in as many fresh episodes: that is what the card says it returns

Line 3 is there since the best of several means is too high: the choice has looked at those episodes.

    OUT/policy.npz     the policy as it was trained, chance included (`Actor.save`)
    OUT/weights.npz    what it does without chance, as plain weights (`weights`), where it is a plain network
    OUT/card.json      command, seed, versions, settings, learning curve, return with its spread, how it was chosen
    OUT/curve.csv      a line for each seed and round of training

The directory is complete or absent. Until it is there, training keeps its place beside it, and the same call goes on
from that after an interruption or kill -9: in a JAX environment to the same policy, in Gymnasium with new episodes.
"""

import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.core.errors import DivergedError, check_whole
from understudy.core.progress import Progress
from understudy.core.statistics import Sample
from understudy.core.storage import check_free, whole_directory, write_json, write_npz
from understudy.core.types import Continuous
from understudy.envs import Environment, GymnasiumEnvironment, make
from understudy.evaluation.returns import evaluate
from understudy.experts.weights import plain_weights
from understudy.policies.actor import Actor, describe_spec
from understudy.policies.saved import POLICY
from understudy.rl.base import RLPlayer
from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.train.checkpoints import CHECKPOINT
from understudy.train.learn import Learned, learn
from understudy.train.results import write_csv
from understudy.train.resuming import forget

EPISODES = 25
CHOOSING, SCORING = 0, 1
"""Seeds of the episodes by which one is chosen, and of those by which it is scored."""


@dataclass(frozen=True)
class Trained:
    """The seed that was chosen."""

    actor: Actor
    card: dict[str, Any]
    """As in card.json."""
    score: Sample
    """Its return on fresh episodes."""
    tried: dict[int, Sample]
    """Every seed's return on the episodes that the choice went by."""


def default_player(env: Environment | GymnasiumEnvironment) -> RLPlayer:
    """SAC for continuous actions, PPO for discrete ones."""
    return SAC() if isinstance(env.spec.action, Continuous) else PPO()


def train_expert(
    env: Any,
    out: str | os.PathLike[str],
    player: RLPlayer | None = None,
    steps: int = 100_000,
    seeds: int = 3,
    episodes: int = EPISODES,
    workers: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Trained:
    """Train an expert for an environment and keep it in the directory `out`.

    `episodes` are played by each seed's policy for the choice, and by the chosen one again for its score. `settings`
    are those of `rl.learn`: envs, frequency, batch_size, random_steps, ... Ctrl-C ends training at the end of a round,
    keeps its place, and raises KeyboardInterrupt.
    """
    check_whole(1, episodes=episodes)
    check_free(out)
    made = make(env)
    learned = learn(
        default_player(made) if player is None else player,
        made,
        steps,
        seeds,
        progress=progress,
        checkpoint=f"{out}{CHECKPOINT}",
        workers=workers,
        **settings,
    )
    if learned.interrupted:
        raise KeyboardInterrupt
    tried = _tried(learned, episodes, workers or 1)
    seed = max(tried, key=lambda seed: tried[seed].mean)
    chosen = learned.policies[learned.seeds.index(seed)]
    score = Sample.of(evaluate([chosen], made, episodes, SCORING).returns[0])
    trained = Trained(chosen, _card(learned, tried, seed, score), score, tried)
    _save(trained, learned, out)
    forget(str(out))
    return trained


def _tried(learned: Learned, episodes: int, workers: int) -> dict[int, Sample]:
    """Line 2: the returns of the seeds that came to their end."""
    whole = [i for i, status in enumerate(learned.statuses) if not status.startswith("diverged")]
    if not whole:
        raise DivergedError(f"every seed {learned.statuses[0]}: lower the learning rate")
    policies = [learned.policies[i] for i in whole]
    played = evaluate(policies, learned.env, episodes, CHOOSING, workers=workers).returns
    return {learned.seeds[i]: Sample.of(returns) for i, returns in zip(whole, played, strict=True)}


def _card(learned: Learned, tried: dict[int, Sample], seed: int, score: Sample) -> dict[str, Any]:
    config = dict(learned.config)
    command = re.sub(r" --out[ =]\S+", "", config.pop("command"))  # where it was kept is of no use elsewhere
    if len(tried) > 1:
        chosen = (
            f"the best of {len(tried)} seeds by the mean return of {score.size} episodes each, without chance, "
            f"then scored again on {score.size} fresh ones"
        )
    else:
        chosen = f"the only seed, scored on {score.size} fresh episodes, without chance"
    index = learned.seeds.index(seed)
    return {
        "env": config.pop("env"),
        "command": command,
        "seed": seed,
        "chosen": chosen,
        "return": {"mean": _plain(score.mean), "std": _plain(score.std), "episodes": score.size},
        "tried": {str(one): _plain(sample.mean) for one, sample in tried.items()},
        **config,
        "spec": describe_spec(learned.env.spec),
        "curve": {
            "env_steps": [int(x) for x in learned.metrics["env_steps"][index]],
            "return": [_plain(x) for x in learned.metrics["return"][index]],
        },
    }


def _save(trained: Trained, learned: Learned, out: str | os.PathLike[str]) -> None:
    names = [name for name in learned.metrics if name != "env_steps"]
    with whole_directory(out) as beside:
        trained.actor.save(beside / POLICY)
        weights = plain_weights(trained.actor)
        if weights is not None:
            write_npz(beside / "weights.npz", weights)
        write_json(beside / "card.json", trained.card)
        write_csv(
            beside / "curve.csv",
            ["seed", "env_steps", *names],
            (
                [seed, int(taken), *(float(learned.metrics[name][i, round_]) for name in names)]
                for i, seed in enumerate(learned.seeds)
                for round_, taken in enumerate(learned.metrics["env_steps"][i])
            ),
        )


def _plain(number: float) -> float | None:
    """As JSON takes it: none where no episode ended."""
    return round(float(number), 3) if np.isfinite(number) else None
