"""Numbers that the paper's authors published, to stand beside ours.

Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching: A Game-Theoretic Framework for Closing the Imitation Gap"
(ICML 2021): Figure 3 in the main text and the runs released with it, as mean ± standard error over 5 seeds, each seed's
return a mean over 10 episodes. LunarLander: the figure of the supplement's section on on-Q experiments and the runs
released with it, as means over 5 trials.
"""

from typing import NamedTuple

from understudy.statistics import Sample

SEEDS = 5
TRAJECTORIES = (5, 10, 15, 20, 25)
EXPERT = {"HalfCheetahBulletEnv-v0": 2154.0, "AntBulletEnv-v0": 2585.0}

_OFF_Q: dict[str, dict[str, list[tuple[float, float]]]] = {
    "HalfCheetahBulletEnv-v0": {
        "bc": [(850, 379), (2005, 107), (1650, 144), (1828, 165), (2043, 73)],
        "valuedice": [(376, 219), (1333, 283), (927, 130), (701, 248), (1019, 137)],
        "advil": [(1073, 263), (1344, 178), (1349, 177), (1233, 243), (1051, 472)],
    },
    "AntBulletEnv-v0": {
        "bc": [(2191, 54), (2400, 49), (2505, 33), (2310, 77), (2546, 17)],
        "valuedice": [(2057, 102), (2213, 54), (2244, 54), (2342, 74), (2486, 51)],
        "advil": [(1751, 124), (1967, 110), (1856, 176), (1767, 147), (2311, 113)],
    },
}


def off_q(env: str, algorithm: str) -> dict[int, Sample]:
    """Return against the number of demonstrated trajectories; empty where nothing was published."""
    points = _OFF_Q.get(env, {}).get(algorithm, [])
    samples = [Sample(mean, error * SEEDS**0.5, SEEDS) for mean, error in points]
    return dict(zip(TRAJECTORIES, samples, strict=False))


class Range(NamedTuple):
    """Where returns lay, where no more than that is known."""

    rounds: tuple[int, int]
    low: float
    high: float
    lowest: float
    """Where they fell to now and then."""


LANDER_EXPERT = 282.0
LANDER_DAGGER = (-537, 192, 278, 273, 284, 278, 282, 282, 283, 281)
"""By round, from what they started with on."""
LANDER_RANGE = {"daequil": Range((4, 9), 250, 290, 210)}


def lander(algorithm: str) -> dict[int, Sample]:
    """Return by round on LunarLander with masked leg contacts; empty where no numbers were published."""
    means = LANDER_DAGGER if algorithm == "dagger" else ()
    return {x: Sample(float(mean), float("nan"), SEEDS) for x, mean in enumerate(means)}


FOREST_EXPERT = 65.0
FOREST: dict[str, tuple[float, float]] = {"dagger": (0.0, 14.0), "daequil": (2.0, 100.0)}
"""The lowest and highest distance of a round in the released runs: the paper's text has no numbers, only a curve."""
