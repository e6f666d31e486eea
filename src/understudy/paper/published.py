"""The numbers that the paper's authors published, for comparison with ours.

Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching: A Game-Theoretic Framework for Closing the Imitation Gap"
(ICML 2021): Figure 3 in the main text and the runs released with it, as mean ± standard error over 5 seeds, each seed's
return a mean over 10 episodes. LunarLander: the figure of the supplement's section on on-Q experiments and the runs
released with it, as means over 5 trials.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from understudy.core.statistics import Sample
from understudy.studies.published import Published

SOURCE = "Swamy et al., 2021"
CITATION = (
    "Swamy, Choudhury, Bagnell and Wu, “Of Moments and Matching: A Game-Theoretic Framework for Closing the Imitation "
    "Gap”, ICML 2021: Figure 3 and the runs released with it; mean ± standard error over 5 seeds"
)
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


BC_TABLE = {"HalfCheetahBulletEnv-v0": 2083.0, "AntBulletEnv-v0": 2526.0}
"""The supplement's table: behavioral cloning on 25 trajectories, 100,000 gradient steps."""


def off_q(env: str, algorithm: str) -> dict[int, Sample]:
    """Return by the number of demonstrated trajectories; empty if nothing was published."""
    points = _OFF_Q.get(env, {}).get(algorithm, [])
    samples = [Sample(mean, error * SEEDS**0.5, SEEDS) for mean, error in points]
    return dict(zip(TRAJECTORIES, samples, strict=False))


_REWARD: dict[str, dict[str, list[tuple[float, float]]]] = {
    "HalfCheetahBulletEnv-v0": {
        "gail": [
            (-1394, 13),
            (-1331, 28),
            (-1348, 20),
            (-1377, 21),
            (-1176, 176),
            (-1418, 30),
            (-1387, 34),
            (-1281, 102),
            (-1139, 109),
            (-1069, 231),
            (-982, 331),
            (-349, 215),
            (112, 216),
            (-495, 333),
            (-366, 327),
            (-332, 268),
            (-87, 301),
            (-377, 338),
            (-201, 275),
            (148, 225),
        ],
        "sqil": [
            (-1369, 21),
            (-861, 168),
            (-728, 172),
            (-433, 314),
            (388, 601),
            (717, 295),
            (1201, 249),
            (-101, 689),
            (-1009, 201),
            (-1241, 71),
            (-1341, 28),
            (-1376, 26),
            (-1400, 15),
            (-1399, 19),
            (-1408, 16),
            (-1421, 12),
            (-1432, 9),
            (-1426, 11),
            (-1424, 10),
            (-1415, 12),
        ],
        "adril": [
            (-1299, 33),
            (678, 399),
            (552, 484),
            (1938, 30),
            (2045, 67),
            (2091, 57),
            (2176, 8),
            (2170, 12),
            (2171, 13),
            (2166, 12),
            (2164, 7),
            (2172, 5),
            (2164, 5),
            (2165, 6),
            (2152, 5),
            (2159, 4),
            (2154, 2),
            (2153, 6),
            (2157, 8),
            (2150, 12),
        ],
    },
    "AntBulletEnv-v0": {
        "gail": [
            (10, 0),
            (8, 0),
            (270, 137),
            (486, 116),
            (232, 121),
            (419, 57),
            (542, 38),
            (470, 51),
            (457, 56),
            (459, 45),
            (380, 27),
            (372, 30),
            (340, 57),
            (308, 36),
            (326, 30),
            (373, 61),
            (408, 33),
            (406, 68),
            (339, 83),
            (330, 63),
        ],
        "sqil": [
            (26, 15),
            (533, 79),
            (769, 41),
            (1082, 188),
            (1593, 186),
            (1869, 154),
            (1552, 145),
            (2131, 79),
            (2128, 120),
            (2146, 64),
            (2236, 147),
            (2259, 106),
            (2170, 82),
            (2010, 169),
            (2192, 140),
            (1809, 104),
            (1618, 137),
            (1662, 100),
            (1444, 129),
            (1351, 120),
        ],
        "adril": [
            (112, 101),
            (412, 68),
            (674, 60),
            (1529, 123),
            (1884, 196),
            (1803, 439),
            (2059, 261),
            (2063, 162),
            (2057, 233),
            (2356, 127),
            (2200, 139),
            (1121, 443),
            (2019, 178),
            (1904, 252),
            (1951, 486),
            (1684, 336),
            (1937, 166),
            (1694, 474),
            (1949, 264),
            (1089, 479),
        ],
        "adril-balanced": [
            (28, 18),
            (406, 61),
            (1153, 101),
            (1281, 77),
            (1675, 141),
            (2184, 73),
            (1847, 423),
            (2326, 94),
            (2076, 162),
            (2240, 87),
            (2148, 68),
            (1926, 443),
            (2421, 152),
            (2356, 98),
            (2129, 146),
            (2229, 71),
            (2048, 174),
            (2193, 71),
            (2191, 145),
            (1815, 164),
        ],
    },
}
"""Mean and standard error every `REWARD_EVERY` environment steps, from 0 on."""
REWARD_EVERY = 25_000
REWARD_TRAJECTORIES = {"gail": 5, "sqil": 5, "adril": 20, "adril-balanced": 20}
"""Demonstrated trajectories in the paper."""


def reward(env: str, algorithm: str) -> dict[int, Sample]:
    """Return by environment steps; empty if nothing was published."""
    points = _REWARD.get(env, {}).get(algorithm, [])
    return {i * REWARD_EVERY: Sample(mean, error * SEEDS**0.5, SEEDS) for i, (mean, error) in enumerate(points)}


def find_published(env: str, algorithm: str, hyperparameters: Mapping[str, Any]) -> Published:
    """The paper's results of an algorithm on a task, for study reports."""
    name = "adril-balanced" if algorithm == "adril" and hyperparameters.get("balanced") else algorithm
    numbers = (reward(env, name), REWARD_TRAJECTORIES.get(name, 0), off_q(env, algorithm))
    return Published(name, *numbers, SOURCE, CITATION)


_REWARD_LAST_FIVE: dict[str, dict[str, tuple[float, float, float]]] = {
    "HalfCheetahBulletEnv-v0": {"gail": (-170, 212, -1524), "sqil": (-1424, 7, -1459), "adril": (2155, 1, 2119)},
    "AntBulletEnv-v0": {
        "gail": (371, 46, 26),
        "sqil": (1577, 58, 950),
        "adril": (1671, 134, 3),
        "adril-balanced": (2095, 84, 182),
    },
}


class Ending(NamedTuple):
    """The end of the runs of one learner."""

    last_five: Sample
    """Each seed's mean over its last five evaluations."""
    lowest: float
    """The lowest evaluation of any seed among the last ten."""


def reward_ending(env: str, algorithm: str) -> Ending:
    """The end of the released runs. Their last five evaluations are at 375,000 to 475,000 steps."""
    mean, error, lowest = _REWARD_LAST_FIVE[env][algorithm]
    return Ending(Sample(mean, error * SEEDS**0.5, SEEDS), lowest)


class Range(NamedTuple):
    """A range of returns, for results without published single numbers."""

    rounds: tuple[int, int]
    low: float
    high: float
    lowest: float
    """The lowest return of single rounds."""


LANDER_EXPERT = 282.0
LANDER_DAGGER = (-537, 192, 278, 273, 284, 278, 282, 282, 283, 281)
"""By round, from the initial policy on."""
LANDER_RANGE = {"daequil": Range((4, 9), 250, 290, 210)}


def lander(algorithm: str) -> dict[int, Sample]:
    """Return by round on LunarLander with hidden leg contacts; empty if no numbers were published."""
    means = LANDER_DAGGER if algorithm == "dagger" else ()
    return {x: Sample(float(mean), float("nan"), SEEDS) for x, mean in enumerate(means)}


FOREST_EXPERT = 65.0
FOREST: dict[str, tuple[float, float]] = {"dagger": (0.0, 14.0), "daequil": (2.0, 100.0)}
"""The lowest and highest distance of a round in the released runs. The paper shows a curve without numbers."""

EXPONENTS: dict[tuple[str, str], tuple[int, str]] = {
    ("CLIFF, reward", "ε over F_r/2"): (1, "Ω(εT), the reward lower bound's proof"),
    ("CLIFF, off-Q", "ε over the box of F_Q/2T"): (2, "Ω(εT²), the off-Q lower bound's proof"),
    ("CLIFF, on-Q", "ε over the box of F_Q/2T"): (2, "O(εHT) with H of order T"),
    ("CLIFF, on-Q", "error in s_0, as in the paper's proof"): (1, "Ω(εT), the on-Q lower bound's proof"),
    ("LOOP, reward", "ε over F_r/2"): (1, "O(εT)"),
    ("LOOP, off-Q", "ε over the box of F_Q/2T"): (2, "O(εT²)"),
    ("LOOP, on-Q", "ε over the box of F_Q/2T"): (1, "O(εHT) with H = 1"),
    ("UNICYCLE, on-Q", "κ, classification error"): (2, "Ω(κT²), lemma of section 4.5"),
    ("LOOP, on-Q", "κ, classification error"): (1, "O(κHT) with H = 1"),
}
"""Growth of the gap with the horizon: the exponent of T, and the statement in the paper that implies it."""
RECOVERABILITY = {
    "LOOP": "1-recoverable",
    "CLIFF": "not for any H < T",
    "UNICYCLE": "not for any H < T",
}
