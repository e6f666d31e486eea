"""Certificates: upper bounds on the imitation gap J(π_E) − J(π) that hold for every reward of a class.

    moments   gap at most                 for every reward with                        needs
    reward    T (sup U1 + w)              ‖r‖ ≤ 1                                      demonstrations, environment
    off-Q     T² (sup U2 + w)             Q^π = (T − t) q, ‖q‖ ≤ 1                     demonstrations
    on-Q      T² or H T (sup U3 + w)      Q^{π_E} = (T − t) q, ‖q‖ ≤ 1 or ‖A^{π_E}‖ ≤ H    environment, expert

The class is the unit ball of a Gaussian kernel's space (`evaluation.embeddings`), so sup U is the norm of a mean of
vectors, one for each episode. w is its finite-sample error (`evaluation.concentration`). The samples must be fresh: the
policy must not depend on them. The first tenth of the episodes fits the kernel and is not counted. docs/certificates.md
derives the bounds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from understudy.collect.acting import acting_expert
from understudy.collect.recorder import Episodes
from understudy.collect.recording import record
from understudy.collect.rollout_pool import rollout_pool
from understudy.collect.rollouts import rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import (
    DemonstrationError,
    NeedsError,
    SettingError,
    SpecError,
    check_choice,
    check_positive,
    check_seed,
    check_whole,
)
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment, make_unfinished
from understudy.evaluation.certificate import Certificate, Certificates
from understudy.evaluation.concentration import check_confidence
from understudy.evaluation.embeddings import Steps
from understudy.evaluation.judge import Judge, episode_steps
from understudy.evaluation.returns import completed
from understudy.game import Moments
from understudy.policies.actor import Actor, check_fits

ALL: tuple[Moments, ...] = ("reward", "off-Q", "on-Q")
FEWEST = 3
"""The fewest episodes of a side: one fits the kernel, two are judged."""


def certify(
    policy: Any,
    demonstrations: Demonstrations | None = None,
    env: Any = None,
    expert: Any = None,
    *,
    moments: Sequence[Moments] | None = None,
    episodes: int = 100,
    confidence: float = 0.95,
    recoverability: float | None = None,
    seed: int = 0,
    workers: int | None = None,
    step_timeout: float = STEP_TIMEOUT,
    progress: bool = True,
) -> Certificates:
    """Certificates of a policy's imitation gap.

    Args:
        policy: A policy, or a `Result`, whose selected policy is judged. A `Result` knows what it was trained on: of
            those demonstrations, only episodes that trained and selected no policy count.
        demonstrations: Fresh demonstrations: the policy must not have been trained or selected on them. None: the
            expert's episodes are recorded.
        env: Environment for the policy's own episodes. Reward and on-Q moments need it.
        expert: Expert, as in `understudy.record`. On-Q moments need it.
        moments: The moments to match: "reward", "off-Q", "on-Q". Default: all that the arguments allow.
        episodes: Fresh episodes of the policy, and of the expert if it is recorded.
        confidence: Probability with which each bound holds.
        recoverability: H, for on-Q moments: the norm of the expert's advantages in the kernel's space. The bound is
            then H T instead of T². It is taken as given.
        seed: Seed of episodes, permutations and resamples.
        workers: As in `understudy.evaluate`.
        step_timeout: As in `understudy.evaluate`.
        progress: Show a spinner while an expert is recorded.
    """
    if hasattr(policy, "certificate"):
        options = {"moments": moments, "episodes": episodes, "confidence": confidence, "seed": seed}
        options |= {"recoverability": recoverability, "workers": workers, "step_timeout": step_timeout}
        found: Certificates = policy.certificate(demonstrations, env, expert, progress=progress, **options)
        return found
    if not isinstance(policy, Actor):
        raise SettingError(f"policy is a {type(policy).__name__}: give a policy such as result.policy, or a result")
    alpha = check_confidence(confidence)
    check_whole(FEWEST, episodes=episodes)
    check_seed(seed)
    if recoverability is not None:
        check_positive(recoverability=recoverability)
    for name in moments or ():
        check_choice(ALL, moments=name)
    environment = None if env is None else completed(make_unfinished(env), policy)
    if environment is not None:
        check_fits(policy, environment)
    if expert is not None and environment is None:
        raise NeedsError("an expert acts in an environment: pass env= (--env) too")
    seeds = [int(one) for one in np.random.SeedSequence([seed, 3]).generate_state(4)]
    if demonstrations is None and expert is not None:
        demonstrations = record(
            env, expert, episodes, seeds[0], workers=workers, step_timeout=step_timeout, progress=progress
        )
    judge = Judge(policy, _fresh(demonstrations, policy, environment), alpha, seeds[1])
    missing: dict[str, str] = {}
    for name in ALL if moments is None else moments:
        why = _missing(name, demonstrations, environment, expert)
        if why is not None:
            missing[name] = why
    wanted = [name for name in (moments or ALL) if name not in missing]
    if not wanted:
        raise NeedsError("; ".join(f"{name} moments: {why}" for name, why in missing.items()))
    made: list[Certificate] = []
    learner = None
    if environment is not None and {"reward", "on-Q"} & set(wanted):
        learner = episode_steps(_episodes(environment, policy, episodes, seeds[2], workers, step_timeout))
    if "reward" in wanted and learner is not None:
        made += judge.reward(learner)
    if "off-Q" in wanted:
        made.append(judge.off_q())
    if "on-Q" in wanted and learner is not None and environment is not None:
        acting = acting_expert(expert, environment)
        made.append(judge.on_q(learner, acting, np.random.default_rng(seeds[3]), recoverability))
    return Certificates(tuple(made), missing)


def _fresh(demonstrations: Any, actor: Actor, env: Environment | GymnasiumEnvironment | None) -> Steps | None:
    """The demonstrations as steps, checked against the policy's task."""
    if demonstrations is None:
        return None
    if not isinstance(demonstrations, Demonstrations):
        raise DemonstrationError(f"demonstrations is a {type(demonstrations).__name__}: see Demonstrations.from_arrays")
    name = "the policy" if env is None else env.name
    if demonstrations.spec.obs_shape != actor.spec.obs_shape:
        raise SpecError(
            f"the policy takes observations of shape {actor.spec.obs_shape}, the demonstrations have "
            f"{demonstrations.spec.obs_shape}: pass demonstrations of its own task"
        )
    fitted = demonstrations.for_task(actor.spec, name)
    if fitted.episodes < FEWEST:
        raise DemonstrationError(
            f"{fitted.episodes} demonstrated episode{'s' * (fitted.episodes > 1)}: a certificate needs at least "
            f"{FEWEST}, since episodes are the independent samples"
        )
    if int(fitted.lengths.max()) > actor.spec.horizon:
        raise SpecError(
            f"the demonstrations have an episode of {fitted.lengths.max()} steps, the policy's horizon is "
            f"{actor.spec.horizon}: pass demonstrations of its own task"
        )
    steps = fitted.transitions()
    ends = np.cumsum(fitted.lengths) - 1
    return Steps(steps.t, steps.obs, steps.act, fitted.lengths, np.asarray(steps.terminal)[ends], fitted.rewards)


def _missing(name: Moments, demonstrations: Any, env: Any, expert: Any) -> str | None:
    """What a certificate lacks, in the words of `imitate`; None: nothing."""
    lacks = []
    if name != "on-Q" and demonstrations is None:
        lacks.append("fresh demonstrations (or expert= and env= to record them)")
    if name != "off-Q" and env is None:
        lacks.append("an environment: pass env= (--env)")
    if name == "on-Q" and expert is None:
        lacks.append("an expert to query: pass expert= (--expert)")
    return f"not computed, needs {' and '.join(lacks)}" if lacks else None


def _episodes(
    env: Environment | GymnasiumEnvironment,
    actor: Actor,
    episodes: int,
    seed: int,
    workers: int | None,
    step_timeout: float,
) -> Episodes:
    """Fresh deterministic episodes of the policy."""
    pool = rollout_pool(env, 1, workers, step_timeout)
    if pool is None:
        return rollout(env, actor.policy, episodes, seed)
    with pool:
        return pool.rollout(actor.policy, episodes, seed).result()
