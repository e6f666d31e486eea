"""`understudy expert train`: an expert for a task of one's own, see `expert_training`."""

import os
import sys
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from understudy.core import display
from understudy.core.errors import SettingError
from understudy.core.options import Path_
from understudy.core.statistics import interval
from understudy.envs import JAX_ENVIRONMENTS, make
from understudy.rl.base import RLPlayer
from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ
from understudy.train.checkpoints import CHECKPOINT
from understudy.train.expert import EPISODES, default_player, train_expert

_SAC, _PPO, _SOFT_Q = SAC(), PPO(), SoftQ()


def train_command(
    env: Positional[str],
    player: Literal["sac", "ppo", "soft-q"] | None = None,
    steps: int = 100_000,
    seeds: int = 3,
    envs: int | None = None,
    frequency: int | None = None,
    batch_size: int = 256,
    random_steps: int | None = None,
    history: int | None = None,
    truncation_is_terminal: bool = False,
    staleness: int = 0,
    workers: int | None = None,
    evaluate: int = EPISODES,
    out: Path_ = None,
    sac: SAC = _SAC,
    ppo: PPO = _PPO,
    soft_q: SoftQ = _SOFT_Q,
) -> None:
    """Train an expert on the environment's own reward, and keep the best of its seeds.

    Interrupted, or killed, the same command goes on.

    Args:
        env: The environment.
        player: Who learns. Default: sac for continuous actions, ppo for discrete ones.
        steps: Environment steps of each seed.
        seeds: Seeds to train, 0 to N-1, in one program.
        envs: Environments of a seed that step together. Default: 8 for ppo, 1 for the others.
        frequency: Environment steps of a seed between updates. Default: 2,048 for ppo, a step for each gradient step of
            the others.
        batch_size: Steps in a minibatch that sac and soft-q draw from what they remember.
        random_steps: Steps at the start that take any action. Default: 1,000 or a tenth of the steps; none for ppo.
        history: Steps that sac and soft-q remember. Default: all.
        truncation_is_terminal: Take time limits for ends.
        staleness: Updates that the policy that plays is behind in Gymnasium; 1 steps and learns at once, which is faster.
        workers: Processes for schedule Gymnasium environments; 0: none but this one. Default: as many as pay.
        evaluate: Episodes by which a seed is chosen, and as many again by which it is scored.
        out: The expert's directory. Default: experts/ENV.
        sac: Settings of sac.
        ppo: Settings of ppo.
        soft_q: Settings of soft-q.
    """
    path = str(Path(out or f"experts/{env}"))
    chosen = _player(env, player, {"sac": sac, "ppo": ppo, "soft-q": soft_q})
    if os.path.exists(f"{path}{CHECKPOINT}"):
        anew = "" if env in JAX_ENVIRONMENTS else f"; episodes of {env} begin anew"
        print(f"Going on from {path}{CHECKPOINT}{anew}", file=sys.stderr)
    try:
        with display.progress_bar(f"{type(chosen).__name__} in {env}") as report:
            trained = train_expert(
                env,
                path,
                chosen,
                steps,
                seeds,
                evaluate,
                workers,
                report,
                envs=envs,
                frequency=frequency,
                batch_size=batch_size,
                random_steps=random_steps,
                history=history,
                truncation_is_terminal=truncation_is_terminal,
                staleness=staleness,
            )
    except KeyboardInterrupt:
        if os.path.exists(f"{path}{CHECKPOINT}"):
            raise KeyboardInterrupt("training keeps its place; the same command goes on from there") from None
        raise
    rows = [
        (seed, interval(sample), "chosen" if seed == trained.card["seed"] else "")
        for seed, sample in trained.tried.items()
    ]
    title = f"{type(chosen).__name__} in {env}: mean ± 95% interval, {evaluate} episodes each, without chance"
    display.show((">seed", ">return", ""), rows, title)
    print(f"\nThe chosen one, in {evaluate} fresh episodes: {interval(trained.score)}. Kept in {path}")
    print(f"Demonstrations: understudy demos collect {env} --expert {path} --out FILE")


def _player(env: str, name: str | None, offered: dict[str, RLPlayer]) -> RLPlayer:
    """The one that is named, or that fits the environment's actions; settings of another are a mistake."""
    if name is None:
        fits = type(default_player(make(env)))
        name = next(one for one, player in offered.items() if isinstance(player, fits))
    for one, player in offered.items():
        if one != name and player != type(player)():
            raise SettingError(f"settings of {one} were given, but {name} learns in {env}: pass --player {one}")
    return offered[name]
