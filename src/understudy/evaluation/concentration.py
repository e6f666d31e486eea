"""How far a mean of vectors is from its expectation, and whether two samples of vectors differ.

Vectors are known by their inner products alone, as those of a kernel's space are. A sample has n independent vectors
X_i; `Contrast` is the vector of interest, a mean of one sample, or the difference of the means of two.

The inequality (docs/certificates.md has the proof; Martinez-Taboada and Ramdas, "Empirical Bernstein in smooth Banach
spaces", 2024, have the same form, Pinelis, 1994, the tools). Let c_i be 1/n or −1/m, D a bound on ‖X_i − x_i‖, and x_i
a centre that depends on earlier vectors only. Then for any κ with κ D max |c_i| < 1

    E cosh(κ ‖Σ c_i (X_i − E X_i)‖) exp(−Σ ψ(κ D |c_i|) ‖X_i − x_i‖² / D²) ≤ 1,     ψ(λ) = (e^λ − 1 − λ) / (1 − λ)

A mean of the left side over a fixed grid of κ is also at most 1. By Markov's inequality it exceeds 1/α with probability
α at most, so the largest norm for which it does not is a bound that adapts to the variance. No term is asymptotic.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from understudy.core.errors import SettingError, check_whole

GRID = 8
"""Values of κ."""
LARGEST = 0.9
"""The largest κ D max |c_i|. It must be below 1."""
PERMUTATIONS = 999
RESAMPLES = 999
POWER = 0.8
"""The probability with which `episodes_to_settle` episodes would show the difference."""
MOST_EPISODES = 1_000_000


class Contrast(NamedTuple):
    """Σ c_i X_i, with the inner products of all vectors."""

    gram: np.ndarray
    """(N, N), float64."""
    weights: np.ndarray
    """(N,): c_i. 1/n for one sample, −1/m for the other, 0 for vectors that only serve as centres."""
    centres: np.ndarray
    """(N, N): row i holds the weights of the earlier vectors in x_i."""
    diameter: float
    """D."""

    @property
    def norm(self) -> float:
        return _norm(self.gram, self.weights)

    @property
    def scatter(self) -> np.ndarray:
        """(N,): ‖X_i − x_i‖²."""
        cross = self.centres @ self.gram
        distance = np.diag(self.gram) - 2 * np.diag(cross) + (cross * self.centres).sum(axis=1)
        return np.maximum(distance, 0.0)


def two_samples(gram: np.ndarray, counts: tuple[int, int], pilots: tuple[int, int], diameter: float) -> Contrast:
    """The difference of two means. The first `pilots` vectors of a side only start its centres."""
    first, _ = counts
    starts, weights, centres = (0, first), np.zeros(len(gram)), np.zeros_like(gram)
    for start, count, pilot, sign in zip(starts, counts, pilots, (1.0, -1.0), strict=True):
        if count - pilot < 2 or pilot < 1:
            raise SettingError(f"{count} episodes on a side: at least 3 are needed, of which the first is a centre")
        weights[start + pilot : start + count] = sign / (count - pilot)
        for index in range(pilot, count):
            centres[start + index, start : start + index] = 1 / index
    return Contrast(gram, weights, centres, diameter)


def one_sample(gram: np.ndarray, diameter: float) -> Contrast:
    """A mean. The first centre is zero, and it counts as one vector of every later centre."""
    count = len(gram)
    if count < 2:
        raise SettingError(f"{count} episode: at least 2 are needed")
    centres = np.tril(np.ones((count, count)), -1) / np.arange(1, count + 1)[:, None]
    return Contrast(gram, np.full(count, 1 / count), centres, diameter)


def psi(values: np.ndarray) -> np.ndarray:
    """ψ(λ) = (e^λ − 1 − λ) / (1 − λ), for λ from 0 to below 1."""
    return (np.expm1(values) - values) / (1 - values)


def width(contrast: Contrast, alpha: float) -> float:
    """The bound on ‖Σ c_i (X_i − E X_i)‖ that fails with probability `alpha` at most."""
    sizes, diameter = np.abs(contrast.weights), contrast.diameter
    largest = LARGEST / (diameter * sizes.max())
    # The κ that is best for the largest possible variance, D²/2, and the largest κ: a grid that no data decide.
    least = min(np.sqrt(2 * np.log(2 / alpha) / (np.square(sizes).sum() * diameter**2 / 2)), largest)
    kappa = np.geomspace(least, largest, GRID)
    loss = psi(kappa[:, None] * diameter * sizes) @ contrast.scatter / diameter**2
    # Each κ alone gives (ln(2 GRID/α) + loss) / κ, and the mean over the grid is below the best of these.
    low, high = 0.0, float(((np.log(2 * GRID / alpha) + loss) / kappa).min())
    for _ in range(60):
        middle = (low + high) / 2
        exponent = kappa * middle - loss + np.log1p(np.exp(-2 * kappa * middle)) - np.log(2 * GRID)
        low, high = (middle, high) if np.logaddexp.reduce(exponent) < -np.log(alpha) else (low, middle)
    return high


def bootstrap_width(contrast: Contrast, alpha: float, random: np.random.Generator) -> float:
    """The 1 − alpha quantile of ‖Σ c_i (X*_i − X_i)‖ over resamples. Approximate: it is exact as n grows only."""
    norms = np.empty(RESAMPLES)
    sides = [np.flatnonzero(contrast.weights > 0), np.flatnonzero(contrast.weights < 0)]
    for resample in range(RESAMPLES):
        weights = np.zeros(len(contrast.weights))
        for side in sides:
            if len(side):
                times = np.bincount(random.integers(len(side), size=len(side)), minlength=len(side)) - 1.0
                # A resample varies (n − 1)/n times as much as a sample.
                weights[side] = contrast.weights[side] * times * np.sqrt(len(side) / (len(side) - 1))
        norms[resample] = _norm(contrast.gram, weights)
    return float(np.quantile(norms, 1 - alpha, method="higher"))


class Test(NamedTuple):
    """A test of "the expectation of the contrast is zero"."""

    p_value: float
    episodes: int | None
    """Episodes a side at which the test shows the difference that was observed, with probability 80%; None: there is
    no such number, as the samples differ less than two samples of one distribution usually do."""


def randomization_test(contrast: Contrast, alpha: float, random: np.random.Generator) -> Test:
    """Two samples: permute which vector is from which. One sample of differences: flip their signs.

    Both are exact if the two sides of a vector can be exchanged when there is no difference: the p-value is below p
    with probability p at most. The statistic is the norm of the contrast.
    """
    used = np.flatnonzero(contrast.weights)
    gram, weights = contrast.gram[np.ix_(used, used)], contrast.weights[used]
    paired = bool((weights > 0).all())
    if paired:
        chosen = weights * random.choice([-1.0, 1.0], (PERMUTATIONS, len(weights)))
    else:
        chosen = random.permuted(np.broadcast_to(weights, (PERMUTATIONS, len(weights))), axis=1)
    found = np.maximum(((chosen @ gram) * chosen).sum(axis=1), 0.0)
    observed = _norm(gram, weights) ** 2
    larger = int((found >= observed * (1 - 1e-9) - 1e-15).sum())
    p_value = (1 + larger) / (1 + PERMUTATIONS)
    return Test(p_value, _episodes_to_settle(gram, weights, observed, found, alpha))


def _episodes_to_settle(
    gram: np.ndarray, weights: np.ndarray, observed: float, found: np.ndarray, alpha: float
) -> int | None:
    """The smallest n with δ² ≥ q/n + z 2δσ/√n, where δ² is the unbiased estimate of the squared norm.

    q/n is the quantile of the squared norm without a difference, less its mean, and σ the deviation of the vectors
    along the difference. n is the size of the smaller side, and both sides grow alike.
    """
    size = int(min((weights > 0).sum(), (weights < 0).sum() or len(weights)))
    squared = observed - float(found.mean())
    if squared <= 0:
        return None
    quantile = max(float(np.quantile(found, 1 - alpha) - found.mean()), 0.0) * size
    along = gram @ weights
    sides = [along[weights > 0], along[weights < 0]]
    spread = np.sqrt(sum(float(side.var(ddof=1)) for side in sides if len(side) > 1) / max(observed, 1e-300))
    reach = 2 * float(ndtri(POWER)) * np.sqrt(squared) * spread
    root = (reach + np.sqrt(reach**2 + 4 * squared * quantile)) / (2 * squared)
    needed = int(np.ceil(root**2)) if np.isfinite(root) else MOST_EPISODES + 1
    return max(needed, 2) if needed <= MOST_EPISODES else None


def check_confidence(confidence: object) -> float:
    """alpha = 1 − confidence. Raises unless the confidence is from 0.5 to below 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, float | int) or not 0.5 <= confidence < 1:
        raise SettingError(f"confidence is {confidence!r}: a number from 0.5 to below 1 is needed, such as 0.95")
    return 1 - float(confidence)


def pilots_of(count: int) -> int:
    """How many episodes of a side only fit the kernel and start the centres: a tenth, and at least one."""
    check_whole(1, episodes=count)
    return max(1, count // 10)


def _norm(gram: np.ndarray, weights: np.ndarray) -> float:
    return float(np.sqrt(max(weights @ gram @ weights, 0.0)))
