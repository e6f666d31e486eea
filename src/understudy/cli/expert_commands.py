"""`understudy expert train`: train an expert by reinforcement learning (`train.expert`).

The command is one long function because its parameters and docstring are its options and their help.
"""

import sys
from pathlib import Path
from typing import Annotated, Literal

from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import SettingError
from understudy.core.options import EnvArgs, EnvArgument, Int_, Path_, Wraps, default
from understudy.core.statistics import interval
from understudy.envs import JAX_ENVIRONMENTS, NamedEnv, make
from understudy.envs.naming import parse_args
from understudy.rl.base import RLPlayer
from understudy.rl.ppo import PPO
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ
from understudy.train.checkpoints import CHECKPOINT, has_checkpoint
from understudy.train.expert import EPISODES, TrainedExpert, default_player, train_expert

_SAC, _PPO, _SOFT_Q = SAC(), PPO(), SoftQ()


def train_command(
    env: EnvArgument,
    env_arg: EnvArgs = (),
    wrap: Wraps = (),
    horizon: Annotated[Int_, default("the environment's time limit")] = None,
    player: Annotated[
        Literal["sac", "ppo", "soft-q"] | None, default("sac for continuous actions, ppo for discrete ones")
    ] = None,
    steps: int = 100_000,
    seeds: int = 3,
    envs: Annotated[Int_, default("8 for ppo, else 1")] = None,
    frequency: Annotated[Int_, default("2,048 for ppo, else one per gradient step")] = None,
    batch_size: int = 256,
    random_steps: Annotated[Int_, default("0 for ppo, else 1,000 or a tenth of the steps")] = None,
    buffer_size: Annotated[Int_, default("all steps")] = None,
    truncation_is_terminal: bool = False,
    staleness: int = 0,
    workers: Annotated[Int_, default("one per seed, at most one per core")] = None,
    step_timeout: float = STEP_TIMEOUT,
    candidates: int = 1,
    select_episodes: Annotated[Int_, default("as many as --evaluate")] = None,
    evaluate: int = EPISODES,
    out: Annotated[Path_, default("experts/ENV")] = None,
    sac: SAC = _SAC,
    ppo: PPO = _PPO,
    soft_q: SoftQ = _SOFT_Q,
) -> None:
    """Train an expert on the task reward, and save the best seed's policy. Rerun the command to resume.

    Args:
        env: Environment: a name, module:Id or module:function.
        env_arg: Keyword argument of the environment; the value is JSON or text. Repeat the option for several.
        wrap: Wrapper of the environment, such as gymnasium.wrappers:ClipAction. Repeat the option for several.
        horizon: Steps after which an episode of a Gymnasium environment is truncated.
        player: RL algorithm.
        steps: Environment steps per seed.
        seeds: Number of seeds, 0 to N-1, trained in one program.
        envs: Parallel environments per seed.
        frequency: Environment steps per seed between updates.
        batch_size: Minibatch size of sac and soft-q.
        random_steps: Random exploration steps at the start.
        buffer_size: Replay buffer size of sac and soft-q, in steps per seed.
        truncation_is_terminal: Treat truncation as termination.
        staleness: Updates by which the acting policy lags the learner in Gymnasium. 1 steps and learns in parallel,
            which is faster.
        workers: Worker processes that step a Gymnasium environment; 0: this process, without a timeout.
        step_timeout: Seconds that a step or reset may take in a worker; 0: no limit.
        candidates: Policies of each seed to select from: those after its last rounds, of about 50.
        select_episodes: Episodes of each candidate to select the best one.
        evaluate: Fresh episodes to score the selected one.
        out: Directory of the expert.
        sac: Settings of sac.
        ppo: Settings of ppo.
        soft_q: Settings of soft-q.
    """
    named = NamedEnv(env, parse_args(env_arg), wrap, horizon)
    path = str(Path(out or f"experts/{env}"))
    chosen = _player(named, player, {"sac": sac, "ppo": ppo, "soft-q": soft_q})
    if has_checkpoint(f"{path}{CHECKPOINT}"):
        note = "" if env in JAX_ENVIRONMENTS else f"; {env} starts new episodes"
        print(f"Resuming from {path}{CHECKPOINT}{note}", file=sys.stderr)
    try:
        with display.progress_bar(f"{type(chosen).__name__} in {env}") as report:
            trained = train_expert(
                named,
                path,
                chosen,
                steps,
                seeds,
                evaluate,
                workers,
                report,
                step_timeout,
                candidates,
                select_episodes,
                envs=envs,
                frequency=frequency,
                batch_size=batch_size,
                random_steps=random_steps,
                buffer_size=buffer_size,
                truncation_is_terminal=truncation_is_terminal,
                staleness=staleness,
            )
    except KeyboardInterrupt:
        if has_checkpoint(f"{path}{CHECKPOINT}"):
            raise KeyboardInterrupt("the checkpoint is kept; rerun the same command to resume") from None
        raise
    words = "mean ± 95% interval, Student's t over"
    size = next(iter(trained.candidates.values())).size
    _show(trained, f"{type(chosen).__name__} in {env} ({words} {size} deterministic episodes of a policy)")
    print(f"\nReturn of the selected policy ({words} {evaluate} fresh episodes): {interval(trained.score)}")
    print(f"Saved in {path}")
    print(f"To record demonstrations: understudy demos record {env} --expert {path} --out FILE")


def _show(trained: TrainedExpert, title: str) -> None:
    chosen = trained.card["seed"], trained.card["round"]
    rows = [
        (seed, index, interval(returns), "selected" if (seed, index) == chosen else "")
        for (seed, index), returns in trained.candidates.items()
    ]
    display.show((">seed", ">round", ">return", ""), rows, title)


def _player(env: NamedEnv, name: str | None, players: dict[str, RLPlayer]) -> RLPlayer:
    """The named player, or the default one for the environment. Raises if another player's settings are given."""
    if name is None:
        default = type(default_player(make(env)))
        name = next(one for one, player in players.items() if isinstance(player, default))
    for one, player in players.items():
        if one != name and player != type(player)():
            raise SettingError(f"--{one} options were given, but {name} trains in {env.name}: pass --player {one}")
    return players[name]
