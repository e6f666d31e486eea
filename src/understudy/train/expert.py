"""Train an expert: a player of `rl` learns on the task reward, and the best policy is saved.

    1. train a policy for each seed (`train.learn`)
    2. evaluate the policies of each seed's last rounds deterministically, and select the one with the highest mean
    3. evaluate the selected policy in fresh episodes: the score in its card

Line 3 is needed because the maximum of several means is biased upwards.

    OUT/policy.npz     the stochastic policy (`Actor.save`)
    OUT/weights.npz    the deterministic policy as plain weights (`experts.weights`), if it is a plain network
    OUT/card.json      command, seed, versions, settings, learning curve, score, selection
    OUT/curve.csv      a row for each seed and round of training

The directory is written atomically. Until then there is a checkpoint next to it, and the same call resumes after an
interruption or kill -9: in a JAX environment with the same result, in Gymnasium with new episodes.
"""

import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import DivergedError, check_whole
from understudy.core.paths import check_new_directory
from understudy.core.progress import Progress
from understudy.core.rescue import save_or_rescue
from understudy.core.statistics import Sample
from understudy.core.storage import atomic_directory, write_json, write_npz
from understudy.core.types import Continuous
from understudy.deploy.runs import POLICY
from understudy.deploy.structure import describe_spec
from understudy.envs import Environment, GymnasiumEnvironment, NamedEnv, make, named_env
from understudy.evaluation.returns import evaluate
from understudy.experts.weights import plain_weights
from understudy.policies.actor import Actor
from understudy.rl.base import RLPlayer
from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.train.checkpoints import CHECKPOINT, has_checkpoint
from understudy.train.learn import Learned, learn
from understudy.train.resuming import claimed_output, clean_up
from understudy.train.tables import write_csv

EPISODES = 25
SELECTION_SEED, SCORING_SEED = 0, 1
"""Seeds of the episodes of line 2 and of line 3."""


@dataclass(frozen=True)
class TrainedExpert:
    """The selected policy."""

    actor: Actor
    card: dict[str, Any]
    """The contents of card.json."""
    score: Sample
    """Its return in fresh episodes."""
    candidates: dict[tuple[int, int], Sample]
    """(seed, round) → the return of a policy in the episodes of the selection."""


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
    step_timeout: float = STEP_TIMEOUT,
    candidates: int = 1,
    select_episodes: int | None = None,
    **settings: Any,
) -> TrainedExpert:
    """Train an expert for an environment and save it in the directory `out`.

    The policies after the last `candidates` rounds of each seed are evaluated in `select_episodes` episodes (default:
    `episodes`), and the selected one is scored in `episodes` fresh ones.
    `settings` are those of `learn`: envs, frequency, batch_size, random_steps, ... Ctrl-C ends training at the end of a
    round, writes a checkpoint, and raises KeyboardInterrupt.
    """
    select_episodes = episodes if select_episodes is None else select_episodes
    check_whole(1, episodes=episodes, candidates=candidates, select_episodes=select_episodes)
    counts = candidates, select_episodes, episodes
    with claimed_output(str(out)):
        check_new_directory(out)
        return _train_expert(env, out, player, steps, seeds, counts, workers, progress, step_timeout, settings)


def _train_expert(
    given: Any,
    out: str | os.PathLike[str],
    player: RLPlayer | None,
    steps: int,
    seeds: int,
    counts: tuple[int, int, int],
    workers: int | None,
    progress: Progress | None,
    step_timeout: float,
    settings: dict[str, Any],
) -> TrainedExpert:
    most, select_episodes, episodes = counts
    checkpoint = f"{out}{CHECKPOINT}"
    env = make(given)
    learned = learn(
        default_player(env) if player is None else player,
        given if isinstance(given, str | NamedEnv) else env,
        steps,
        seeds,
        progress=progress,
        checkpoint=checkpoint,
        workers=workers,
        step_timeout=step_timeout,
        keep=most - 1,
        **settings,
    )
    if learned.interrupted:
        raise KeyboardInterrupt
    policies = _policies(learned)
    returns = evaluate([*policies.values()], env, select_episodes, SELECTION_SEED, None, workers, False, step_timeout)
    candidates = {key: Sample.of(own) for key, own in zip(policies, returns.returns, strict=True)}
    chosen = max(candidates, key=lambda key: candidates[key].mean)
    selected = policies[chosen]
    scored = evaluate([selected], env, episodes, SCORING_SEED, None, workers, False, step_timeout)
    score = Sample.of(scored.returns[0])
    named = named_env(given, env)
    trained = TrainedExpert(selected, _card(learned, named, candidates, chosen, score), score, candidates)
    hint = f"or rerun the same command, which resumes from '{checkpoint}'" if has_checkpoint(checkpoint) else ""
    save_or_rescue(lambda place: _save(trained, learned, place), out, hint)
    clean_up(str(out))
    return trained


def _policies(learned: Learned) -> dict[tuple[int, int], Actor]:
    """The candidates of line 2: (seed, round) → policy, of the seeds that did not diverge."""
    finite = [i for i, status in enumerate(learned.statuses) if not status.startswith("diverged")]
    if not finite:
        raise DivergedError(f"every seed {learned.statuses[0]}")
    rounds = learned.metrics["env_steps"].shape[1]
    return {
        (learned.seeds[i], index): policy
        for i in finite
        for index, policy in {**learned.earlier[i], rounds: learned.policies[i]}.items()
    }


def _card(
    learned: Learned,
    env: NamedEnv | None,
    candidates: dict[tuple[int, int], Sample],
    chosen: tuple[int, int],
    score: Sample,
) -> dict[str, Any]:
    config = dict(learned.config)
    command = re.sub(r" --out[ =]\S+", "", config.pop("command"))  # a path on this machine
    seed, chosen_round = chosen
    if len(candidates) > 1:
        seeds = len({seed for seed, _ in candidates})
        of = f"{seeds} seeds" if len(candidates) == seeds else f"{len(candidates)} policies of {seeds} seeds"
        episodes = candidates[chosen].size
        selection = (
            f"the best of {of} by the mean return of {episodes} deterministic episodes each, "
            f"scored in {score.size} fresh ones"
        )
    else:
        selection = f"the only seed, scored in {score.size} fresh deterministic episodes"
    rounds = learned.metrics["env_steps"].shape[1]
    shown = {f"{one}" if at == rounds else f"{one}, round {at}": sample for (one, at), sample in candidates.items()}
    index = learned.seeds.index(seed)
    return {
        **_card_env(config.pop("env"), env),
        "command": command,
        "seed": seed,
        "round": chosen_round,
        "selection": selection,
        "return": {"mean": _plain(score.mean), "std": _plain(score.std), "episodes": score.size},
        "candidates": {name: _plain(sample.mean) for name, sample in shown.items()},
        **config,
        "spec": describe_spec(learned.env.spec),
        "curve": {
            "env_steps": [int(x) for x in learned.metrics["env_steps"][index]],
            "return": [_plain(x) for x in learned.metrics["return"][index]],
        },
    }


def _card_env(public: str | None, env: NamedEnv | None) -> dict[str, Any]:
    """The environment in a card: its name, and the arguments, wrappers and horizon that were given."""
    if env is None:
        return {"env": public}
    given = {"env_args": env.args, "wrap": list(env.wrap), "horizon": env.horizon}
    return {"env": env.name, **{name: value for name, value in given.items() if value}}


def _save(trained: TrainedExpert, learned: Learned, out: str | os.PathLike[str]) -> None:
    names = [name for name in learned.metrics if name != "env_steps"]
    with atomic_directory(out) as partial:
        trained.actor.save(partial / POLICY)
        weights = plain_weights(trained.actor)
        if weights is not None:
            write_npz(partial / "weights.npz", weights)
        write_json(partial / "card.json", trained.card)
        write_csv(
            partial / "curve.csv",
            ["seed", "env_steps", *names],
            (
                [seed, int(steps), *(float(learned.metrics[name][i, round_]) for name in names)]
                for i, seed in enumerate(learned.seeds)
                for round_, steps in enumerate(learned.metrics["env_steps"][i])
            ),
        )


def _plain(number: float) -> float | None:
    """A JSON number: null if no episode ended."""
    return round(float(number), 3) if np.isfinite(number) else None
