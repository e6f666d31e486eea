"""Certificates: upper bounds on the imitation gap J(π_E) − J(π) that hold for every reward of a class.

    moments   gap at most                 for every reward with                  needs
    reward    T (sup U1 + w)              ‖r‖ ≤ 1                                demonstrations, environment
    off-Q     T² (sup U2 + w)             ‖Q^π‖ ≤ T                              demonstrations
    on-Q      T² or H T (sup U3 + w)      ‖Q^{π_E}‖ ≤ T or ‖A^{π_E}‖ ≤ H         environment, expert

The class is the unit ball of a Gaussian kernel's space (`evaluation.embeddings`), so sup U is the norm of a mean of
vectors, one for each episode. w is its finite-sample error (`evaluation.concentration`). The samples must be fresh: the
policy must not depend on them. The first tenth of the episodes fits the kernel and is not counted. docs/certificates.md
derives the bounds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import stdtrit

from understudy.collect.acting import ActingExpert, acting_expert
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
from understudy.core.types import Spec
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment, make_unfinished
from understudy.evaluation.concentration import (
    Contrast,
    bootstrap_width,
    check_confidence,
    one_sample,
    pilots_of,
    randomization_test,
    two_samples,
    width,
)
from understudy.evaluation.embeddings import Kernel, Steps, difference_gram, episode_gram, evenly_spaced
from understudy.evaluation.returns import completed
from understudy.game import Moments
from understudy.policies.actor import Actor, check_fits

ALL: tuple[Moments, ...] = ("reward", "off-Q", "on-Q")
FEWEST = 3
"""The fewest episodes of a side: one fits the kernel, two are judged."""
FITTED_STEPS = 500
"""Steps that the task's reward is fitted on."""
SAMPLE_DIAMETER, DIFFERENCE_DIAMETER = 2**0.5, 2 * 2**0.5
"""The largest distance of two episodes' vectors, and of two differences of such vectors: inner products are ≥ 0."""


@dataclass(frozen=True)
class Certificate:
    """An upper bound on J(π_E) − J(π) for every reward of a class, and a test that the two differ at all."""

    moments: Moments
    functions: str
    """The class of rewards or action values."""
    bound: float
    """The gap is at most this."""
    bootstrap: float
    """The same with the bootstrap's error. Approximate: its confidence is right for many episodes only."""
    confidence: float
    largest: float
    """The largest gap that the class admits. A bound that is not below it is vacuous."""
    payoff: float
    """sup U over the class, on the samples."""
    error: float
    """w: the payoff's error, by the concentration inequality."""
    factor: float
    """bound = factor (payoff + error), plus the part of a fitted reward that is outside the class."""
    constants: dict[str, float]
    learner_episodes: int
    expert_episodes: int
    p_value: float
    """Of "learner and expert are the same", by permuting episodes."""
    episodes_to_settle: int | None
    """Episodes a side that would show the observed difference with probability 80%. None: no number would."""
    approximate: tuple[str, ...] = ()
    """Why the confidence is approximate. Empty: it holds for this number of episodes."""

    @property
    def vacuous(self) -> bool:
        return not self.bound < self.largest

    @property
    def different(self) -> bool:
        return self.p_value <= 1 - self.confidence

    @property
    def verdict(self) -> str:
        """Whether learner and expert can be told apart."""
        sides = f"{self.learner_episodes} and {self.expert_episodes} episodes"
        if self.different:
            return f"different (p = {self.p_value:.3g}, {sides})"
        if self.episodes_to_settle is None:
            more = "they differ no more than two samples of one policy: more episodes would not settle this soon"
        else:
            more = f"about {self.episodes_to_settle} episodes a side would settle whether this difference is real"
        return f"cannot be told apart with {sides} (p = {self.p_value:.3g}); {more}"

    def __str__(self) -> str:
        held = f"{self.confidence:.0%}" + (", approximate" if self.approximate else "")
        state = " VACUOUS: no smaller than the largest possible gap." if self.vacuous else ""
        numbers = ", ".join(f"{name} = {value:.4g}" for name, value in self.constants.items())
        lines = [
            f"{self.moments} moments: the gap is at most {self.bound:.4g} ({held}) for {self.functions}.{state}",
            f"  bootstrap (approximate): at most {self.bootstrap:.4g}. Largest possible gap: {self.largest:.4g}.",
            f"  payoff {self.payoff:.4g}, error {self.error:.4g}; {numbers}",
            f"  learner and expert: {self.verdict}",
        ]
        return "\n".join([*lines, *(f"  approximate: {reason}" for reason in self.approximate)])


@dataclass(frozen=True)
class Certificates(Sequence[Certificate]):
    """The certificates that could be computed, and why the others could not."""

    found: tuple[Certificate, ...]
    missing: dict[str, str] = field(default_factory=dict)
    """moments → what they need."""

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.found)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.found), *(f"{name} moments: {why}" for name, why in self.missing.items())])


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
    judge = _Judge(policy, _fresh(demonstrations, policy, environment), alpha, seeds[1])
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


class _Judge:
    """A policy, fresh demonstrations, and the confidence level."""

    def __init__(self, actor: Actor, expert: Steps | None, alpha: float, seed: int):
        self.actor, self.expert, self.alpha = actor, expert, alpha
        self.spec: Spec = actor.spec
        self.random = np.random.default_rng(seed)

    def reward(self, learner: Steps) -> list[Certificate]:
        """For the class, and for the task's own reward where both sides know it."""
        assert self.expert is not None
        expert, horizon = self.expert, self.spec.horizon
        counts = (len(expert.lengths), len(learner.lengths))
        pilots = (pilots_of(counts[0]), pilots_of(counts[1]))
        kernel = Kernel.fit(self.spec, expert.episodes(0, pilots[0]))
        contrast = two_samples(episode_gram(kernel, joined(expert, learner)), counts, pilots, SAMPLE_DIAMETER)
        cut = expert.cut(horizon) + learner.cut(horizon)
        why = (f"{cut} episodes were cut before step {horizon} without an end; their steps count as repeated",)
        made = self._certificate(
            "reward",
            f"every reward r(s, a) of norm ≤ 1 in {_space(kernel)}",
            contrast,
            float(horizon),
            2**0.5 * horizon,
            (counts[1] - pilots[1], counts[0] - pilots[0]),
            kernel,
            why if cut else (),
        )
        if expert.rewards is None or learner.rewards is None:
            return [made]
        return [made, self._task_reward(kernel, contrast, made, expert, learner, pilots)]

    def _task_reward(
        self,
        kernel: Kernel,
        contrast: Contrast,
        unit: Certificate,
        expert: Steps,
        learner: Steps,
        pilots: tuple[int, int],
    ) -> Certificate:
        """gap = T ⟨f, μ_E − μ_π⟩ + gap of r − f, with f fitted on the pilot episodes, which are not judged."""
        pilot = joined(expert.episodes(0, pilots[0]), learner.episodes(0, pilots[1]))
        rewards = np.asarray(pilot.rewards, np.float64)
        rows = evenly_spaced(len(rewards), FITTED_STEPS)
        points = kernel.of(pilot)[rows]
        coefficients, norm = ridge(kernel.values(points, points), rewards[rows])
        rest = []
        for side, first in ((expert, pilots[0]), (learner, pilots[1])):
            judged = side.episodes(first, len(side.lengths))
            misfit = np.asarray(judged.rewards, np.float64) - _predicted(kernel, judged, points, coefficients)
            rest.append(np.add.reduceat(misfit, np.cumsum(judged.lengths) - judged.lengths))
        outside = float(rest[0].mean() - rest[1].mean())
        variance = sum(side.var(ddof=1) / len(side) for side in rest)
        freedom = min(len(side) for side in rest) - 1  # below Welch's: the reach is not too small
        reach = float(stdtrit(freedom, 1 - self.alpha / 2)) * float(np.sqrt(variance))
        error = width(contrast, self.alpha / 2)
        resampled = bootstrap_width(contrast, self.alpha / 2, self.random)
        factor = self.spec.horizon * norm
        returns = [
            np.add.reduceat(np.asarray(s.rewards, float), np.cumsum(s.lengths) - s.lengths) for s in (expert, learner)
        ]
        both = np.concatenate(returns)
        return Certificate(
            moments="reward",
            functions="the task's own reward, fitted by kernel ridge regression",
            bound=factor * (unit.payoff + error) + outside + reach,
            bootstrap=factor * (unit.payoff + resampled) + outside + reach,
            confidence=unit.confidence,
            largest=float(both.max() - both.min()),
            payoff=unit.payoff,
            error=error,
            factor=factor,
            constants={**unit.constants, "norm of the fit": norm, "misfit of the gap": outside, "its error": reach},
            learner_episodes=unit.learner_episodes,
            expert_episodes=unit.expert_episodes,
            p_value=unit.p_value,
            episodes_to_settle=unit.episodes_to_settle,
            approximate=(
                *unit.approximate,
                "the reward is fitted, and the error of its misfit is Student's t over episodes",
                "the largest possible gap is the range of the observed returns",
            ),
        )

    def off_q(self) -> Certificate:
        assert self.expert is not None
        count = len(self.expert.lengths)
        pilots, horizon = pilots_of(count), self.spec.horizon
        kernel = Kernel.fit(self.spec, self.expert.episodes(0, pilots), timed=True)
        judged = self.expert.episodes(pilots, count)
        carry = self.actor.policy.reset(np.random.default_rng(0), judged.t.shape)._replace(t=judged.t)
        learner = np.asarray(self.actor.policy.mode(carry, judged.obs))
        _check_actions(learner)
        contrast = one_sample(difference_gram(kernel, judged, learner, judged.act), DIFFERENCE_DIAMETER)
        names = f"every reward in [-1, 1] with action values Q^π(t, s, a) of norm ≤ T in {_space(kernel)}"
        cut = judged.cut(horizon)
        why = (f"{cut} demonstrations were cut before step {horizon} without an end",) if cut else ()
        size = count - pilots
        return self._certificate(
            "off-Q", names, contrast, float(horizon) ** 2, 2.0 * horizon, (size, size), kernel, why
        )

    def on_q(
        self, learner: Steps, expert: ActingExpert, random: np.random.Generator, recoverability: float | None
    ) -> Certificate:
        count, horizon = len(learner.lengths), self.spec.horizon
        pilots = pilots_of(count)
        kernel = Kernel.fit(self.spec, learner.episodes(0, pilots), timed=True)
        judged = learner.episodes(pilots, count)
        answers = expert.expert.query(judged.obs, expert.spec, random, judged.t)
        contrast = one_sample(difference_gram(kernel, judged, judged.act, answers), DIFFERENCE_DIAMETER)
        names, factor = f"action values Q^E(t, s, a) of norm ≤ T in {_space(kernel)}", float(horizon) ** 2
        largest, cut = 2.0 * horizon, judged.cut(horizon)
        why: tuple[str, ...] = (f"{cut} episodes were cut before step {horizon} without an end",) if cut else ()
        if recoverability is not None:
            names, factor = f"advantages A^E(t, s, a) of norm ≤ H in {_space(kernel)}", recoverability * horizon
            largest = min(largest, factor)  # no advantage is above its norm
            why = (*why, "H is taken as given: the norm of the advantages, not only their largest value")
        size = count - pilots
        found = self._certificate(
            "on-Q", f"every reward in [-1, 1] with {names}", contrast, factor, largest, (size, size), kernel, why
        )
        if recoverability is not None:
            found.constants["H"] = recoverability
        return found

    def _certificate(
        self,
        moments: Moments,
        functions: str,
        contrast: Contrast,
        factor: float,
        largest: float,
        sizes: tuple[int, int],
        kernel: Kernel,
        approximate: tuple[str, ...],
    ) -> Certificate:
        payoff, error = contrast.norm, width(contrast, self.alpha)
        test = randomization_test(contrast, self.alpha, self.random)
        constants = {"T": float(self.spec.horizon), "D": contrast.diameter, "h": kernel.bandwidth, "factor": factor}
        return Certificate(
            moments=moments,
            functions=functions,
            bound=factor * (payoff + error),
            bootstrap=factor * (payoff + bootstrap_width(contrast, self.alpha, self.random)),
            confidence=1 - self.alpha,
            largest=largest,
            payoff=payoff,
            error=error,
            factor=factor,
            constants=constants,
            learner_episodes=sizes[0],
            expert_episodes=sizes[1],
            p_value=test.p_value,
            episodes_to_settle=test.episodes,
            approximate=approximate,
        )


def ridge(gram: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, float]:
    """Kernel ridge regression: coefficients, and the norm of the fit. The penalty is chosen by generalised
    cross-validation."""
    values, vectors = np.linalg.eigh(gram)
    values, projected = np.maximum(values, 0.0), vectors.T @ targets
    best, chosen = np.inf, np.zeros_like(targets)
    for penalty in len(targets) * np.geomspace(1e-6, 1.0, 13):
        shrunk = values / (values + penalty)
        left = max(1 - shrunk.mean(), 1e-12)
        score = float(np.square((1 - shrunk) * projected).mean() / left**2)
        if score < best:
            best, chosen = score, vectors @ (projected / (values + penalty))
    return chosen, float(np.sqrt(max(chosen @ gram @ chosen, 0.0)))


def _predicted(kernel: Kernel, steps: Steps, points: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """The fitted reward of all steps, by blocks."""
    found = kernel.of(steps)
    blocks = range(0, len(found), 4096)
    return np.concatenate([kernel.values(found[start : start + 4096], points) @ coefficients for start in blocks])


def _space(kernel: Kernel) -> str:
    return f"the space of the Gaussian kernel with bandwidth {kernel.bandwidth:.3g} (standardized units)"


def joined(x: Steps, y: Steps) -> Steps:
    rewards = None if x.rewards is None or y.rewards is None else np.concatenate([x.rewards, y.rewards])
    t, obs, act = (np.concatenate(pair) for pair in ((x.t, y.t), (x.obs, y.obs), (x.act, y.act)))
    lengths, terminal = np.concatenate([x.lengths, y.lengths]), np.concatenate([x.terminal, y.terminal])
    return Steps(t, obs, act, lengths, terminal, rewards)


def episode_steps(episodes: Episodes) -> Steps:
    steps, ends = episodes.steps, episodes.lengths - 1
    rows = np.arange(len(ends))
    t, obs, act = (episodes.flat(np.asarray(column)) for column in (steps.t, steps.obs, steps.act))
    terminal = np.asarray(steps.terminal)[rows, ends]
    return Steps(t, obs, act, np.asarray(episodes.lengths), terminal, episodes.flat(episodes.rewards))


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


def _check_actions(actions: np.ndarray) -> None:
    if not np.isfinite(actions).all():
        raise SpecError("the policy's actions on the demonstrated states are not finite: its run has diverged")


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
