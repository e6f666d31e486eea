"""The end of training: the candidates of each run play fresh episodes, and one becomes its final policy."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from understudy.collect.recorder import Episodes
from understudy.collect.rollout_pool import rollout_pool
from understudy.collect.rollouts import rollout
from understudy.core.errors import UnderstudyError
from understudy.core.notices import notice
from understudy.core.progress import Display, Progress
from understudy.core.text import quoted
from understudy.core.types import Spec
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.game import Algorithm
from understudy.policies import Policy
from understudy.policies.actor import Actor
from understudy.train.candidates import WINDOW, Kept
from understudy.train.loop import Training
from understudy.train.records import finite_mean
from understudy.train.results import Candidate, Run
from understudy.train.selection import EPISODES, HeldOut, Judged, Select, choose, episode_seed, held_out_payoff, judge

LAST, ACTING = "last", "last, not averaged"
"""Names of candidates. Those of earlier rounds are called "round N"."""


@dataclass(frozen=True)
class Player:
    """Plays fresh episodes of candidates."""

    env: Environment | GymnasiumEnvironment
    workers: int | None
    step_timeout: float

    def play_one(self, policy: Policy, episodes: int, seed: int) -> Episodes:
        """Some episodes of a policy from the starts of a seed."""
        pool = rollout_pool(self.env, 1, self.workers, self.step_timeout)
        if pool is None:
            return rollout(self.env, policy, episodes, seed)
        with pool:
            return pool.rollout(policy, episodes, seed).result()

    def play(self, jobs: list[tuple[Actor, int]]) -> Iterator[Episodes | UnderstudyError]:
        """The episodes of each policy from the starts of its seed, or why there are none."""
        with ExitStack() as stack:
            pool = rollout_pool(self.env, len(jobs), self.workers, self.step_timeout)
            if pool is not None:
                stack.enter_context(pool)
            futures = None if pool is None else [pool.rollout(actor.policy, EPISODES, seed) for actor, seed in jobs]
            for index, (actor, seed) in enumerate(jobs):
                try:
                    if futures is None:
                        yield rollout(self.env, actor.policy, EPISODES, seed)
                    else:
                        yield futures[index].result()
                except UnderstudyError as error:
                    yield error


class Finalist(NamedTuple):
    """A candidate for the final policy of a run."""

    name: str
    actor: Actor


def final_policies(
    algorithm: Algorithm,
    spec: Spec,
    trained: Training,
    pairs: list[tuple[int, int]],
    criteria: dict[int, HeldOut],
    env_name: str | None,
    player: Player | None,
    select: Select,
    progress: Progress | None = None,
) -> tuple[list[Run], list[Actor], list[Candidate]]:
    """The runs with their payoffs, their final policies, and the candidates of all runs.

    Without a `player`, the final policy is that of the algorithm, and its payoff is measured on held-out steps.
    """
    states, kept = jax.device_get((trained.states, trained.kept))
    finalists: list[list[Finalist]] = []
    for index, (count, seed) in enumerate(pairs):
        state, own = jax.tree.map(lambda x, i=index: x[i], (states, kept))
        about = {"algorithm": algorithm.card.name, "seed": seed, "episodes": count, "env": env_name}
        finalists.append(_finalists(algorithm, spec, state, own, select, about))
    judged = _judged(finalists, pairs, criteria, player, algorithm.rounds, progress)
    runs, actors, candidates = [], [], []
    for index, (count, seed) in enumerate(pairs):
        found = [(one, result) for one, result in zip(finalists[index], judged[index], strict=True) if result]
        status, steps = trained.statuses[index], len(criteria[count].t)
        if found:
            at = choose([result for _, result in found], select)
            chosen, result = found[at]
            mean = float(result.returns.mean())
            run = Run(seed, count, status, result.payoff, result.payoff_error, steps, chosen.name, mean)
            candidates += [
                Candidate(run.name, one.name, one.actor, other.payoff, other.payoff_error, float(other.returns.mean()))
                for one, other in found
            ]
        else:
            chosen = finalists[index][0]
            payoff = held_out_payoff(chosen.actor, criteria[count])
            if not np.isfinite(payoff):
                status = "diverged: the policy's actions are not finite"
            elif algorithm.judged_in_episodes:  # an off-Q payoff says little about it, or nothing
                payoff = finite_mean(trained.metrics["payoff"][index, -WINDOW:])
            run = Run(seed, count, status, payoff, None, steps, chosen.name)
        runs.append(run)
        actors.append(chosen.actor)
    return runs, actors, candidates


def _finalists(
    algorithm: Algorithm, spec: Spec, state: Any, kept: Kept | None, select: Select, about: dict[str, Any]
) -> list[Finalist]:
    """The candidates of a run, each policy once. The first is the one that is returned if nothing is known."""
    if select == "last":
        return [Finalist(LAST, Actor(algorithm.policy(state), spec, about))]
    named = {LAST: algorithm.final_policy(state)}
    if algorithm.schedule is not None:
        named[ACTING] = algorithm.newest_policy(state)
    if kept is not None:
        for part in np.flatnonzero(kept.rounds):
            named[f"round {kept.rounds[part]}"] = jax.tree.map(lambda x, i=part: x[i], kept.policies)
    found: list[Finalist] = []
    for name, policy in named.items():
        if not any(bool(eqx.tree_equal(policy, other.actor.policy)) for other in found):
            found.append(Finalist(name, Actor(policy, spec, about if name == LAST else {**about, "candidate": name})))
    return found


def _judged(
    finalists: list[list[Finalist]],
    pairs: list[tuple[int, int]],
    criteria: dict[int, HeldOut],
    player: Player | None,
    rounds: int,
    progress: Progress | None,
) -> list[list[Judged | None]]:
    """The result of each candidate; None if it did not play, or could not. Ctrl-C leaves out the rest."""
    results: list[list[Judged | None]] = [[None] * len(own) for own in finalists]
    if player is None:
        return results
    places = [(run, number) for run, own in enumerate(finalists) for number in range(len(own))]
    jobs = [(finalists[run][number].actor, episode_seed(pairs[run][1])) for run, number in places]
    try:
        for done, ((run, number), played) in enumerate(zip(places, player.play(jobs), strict=True), start=1):
            if isinstance(played, Episodes):
                results[run][number] = judge(played, criteria[pairs[run][0]])
            else:
                which = f"seed {pairs[run][1]}, {finalists[run][number].name}"
                notice(f"{which}: its fresh episodes failed, so it was not judged ({quoted(played, 300)})")
            if isinstance(progress, Display):
                progress(rounds, rounds, {"fresh episodes": f"candidate {done} of {len(jobs)}"})
    except KeyboardInterrupt:
        notice("interrupted while candidates played fresh episodes: the others were not judged")
    # The last policy comes first: without its result, no other one can be compared with it.
    return [own if own[0] is not None else [None] * len(own) for own in results]
