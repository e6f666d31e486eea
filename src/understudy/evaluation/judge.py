"""A policy's bounds from fresh episodes: which vectors are compared, with which factor and diameter."""

import numpy as np
from scipy.special import stdtrit

from understudy.collect.acting import ActingExpert
from understudy.collect.recorder import Episodes
from understudy.core.errors import SpecError
from understudy.core.types import Spec
from understudy.evaluation.certificate import Certificate
from understudy.evaluation.concentration import (
    Contrast,
    bootstrap_width,
    one_sample,
    pilots_of,
    randomization_test,
    two_samples,
    width,
)
from understudy.evaluation.embeddings import (
    Kernel,
    Steps,
    difference_gram,
    episode_gram,
    evenly_spaced,
    steps_to_go,
)
from understudy.game import Moments
from understudy.policies.actor import Actor

FITTED_STEPS = 500
"""Steps that the task's reward is fitted on."""
SAMPLE_DIAMETER, DIFFERENCE_DIAMETER = 2**0.5, 2 * 2**0.5
"""The largest distance of two episodes' vectors, and of two differences of such vectors: inner products are ≥ 0."""


class Judge:
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
        contrast = _differences(kernel, judged, learner, judged.act, shrinking=True)
        names = f"every reward in [-1, 1] with Q^π(t, s, a) = (T - t) q(t, s, a), q of norm ≤ 1 in {_space(kernel)}"
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
        contrast = _differences(kernel, judged, judged.act, answers, shrinking=recoverability is None)
        names, factor = f"Q^E(t, s, a) = (T - t) q(t, s, a), q of norm ≤ 1 in {_space(kernel)}", float(horizon) ** 2
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


def _differences(kernel: Kernel, steps: Steps, learner: np.ndarray, expert: np.ndarray, *, shrinking: bool) -> Contrast:
    """The mean of the episodes' differences. `shrinking`: values are at most the number of steps to go."""
    horizon = kernel.spec.horizon
    weights = steps_to_go(steps.t, horizon) if shrinking else None
    size = float(steps_to_go(np.arange(horizon), horizon).mean()) if shrinking else 1.0
    return one_sample(difference_gram(kernel, steps, learner, expert, weights), DIFFERENCE_DIAMETER * size)


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


def _check_actions(actions: np.ndarray) -> None:
    if not np.isfinite(actions).all():
        raise SpecError("the policy's actions on the demonstrated states are not finite: its run has diverged")
