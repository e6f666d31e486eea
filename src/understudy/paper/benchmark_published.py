"""Published results of others on the benchmark's tasks: other experts, other protocols, mostly other versions.

Numbers are those of the projects' result files or figures. A number without a spread was published without one, or is
read from a figure.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Source:
    """Where results were published, and how they were measured."""

    citation: str
    protocol: str
    experts: dict[str, float] = field(default_factory=dict)
    """Task → return of the expert."""


@dataclass(frozen=True)
class Published:
    """The returns of one learner."""

    source: str
    """A key of `SOURCES`."""
    learner: str
    demonstrations: int
    returns: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """Task → return and its spread."""
    iqm: str = ""
    """Return over expert, interquartile mean over tasks, as it was described."""


SOAR = {"hopper": 3501.0, "walker2d": 5580.0, "ant": 6343.0, "humanoid": 5237.0}
HYPE = {"ant": 4600.0, "hopper": 3550.0, "humanoid": 5500.0, "walker2d": 4500.0}
IQ_LEARN = {"ant": 4700.0, "walker2d": 5274.0}
SOURCES = {
    "SOAR": Source(
        "Viel, Viano and Cevher, IL-SOAR, ICML 2025 (its result files)",
        "v5 tasks; last 5% of the evaluations of 1.0 to 1.5 million steps; the clip of +SOAR was chosen after the fact",
        SOAR,
    ),
    "HyPE": Source(
        "Ren, Swamy, Wu, Bagnell and Choudhury, Hybrid Inverse Reinforcement Learning, ICML 2024 (its figures)",
        "v3 tasks; an expert that trembles; IQM of 10 seeds after 1 million steps, HyPER after 150,000",
        HYPE,
    ),
    "IQ-Learn": Source("Garg et al., IQ-Learn, NeurIPS 2021", "v2 tasks", IQ_LEARN),
    "Pragmatic": Source(
        "Arulkumaran and Ogawa Lillrank, A Pragmatic Look at Deep Imitation Learning, ACML 2023 "
        "(Kaixhin/imitation-learning)",
        "D4RL's expert data, SAC; IQM over 4 tasks",
    ),
}


def _soar(learner: str, *returns: tuple[float, float]) -> Published:
    return Published("SOAR", learner, 1, dict(zip(SOAR, returns, strict=True)))


def _hype(learner: str, *returns: float) -> Published:
    return Published("HyPE", learner, 64, {task: (mean, None) for task, mean in zip(HYPE, returns, strict=True)})


def _pragmatic(learner: str, *iqms: str) -> list[Published]:
    return [Published("Pragmatic", learner, count, iqm=iqm) for count, iqm in zip((25, 10, 5), iqms, strict=True)]


PUBLISHED = [
    _soar("CSIL", (3252, 464), (5017, 470), (4169, 890), (4431, 272)),
    _soar("CSIL + SOAR", (3506, 71), (4484, 337), (5521, 204), (5008, 464)),
    _soar("ML-IRL", (3337, 143), (4432, 488), (4726, 1148), (4077, 1325)),
    _soar("ML-IRL + SOAR", (3472, 34), (5211, 245), (5724, 247), (4852, 569)),
    _soar("f-IRL", (3285, 160), (4641, 728), (3839, 2587), (4057, 759)),
    _soar("f-IRL + SOAR", (3478, 30), (4469, 350), (5738, 125), (4929, 225)),
    Published("IQ-Learn", "IQ-Learn", 1, {"ant": (4363, None), "walker2d": (5134, None)}),
    _hype("BC", 3600, 2850, 350, 2800),
    _hype("moment matching", 3700, 2450, 5000, 3900),
    _hype("FILTER", 4300, 3250, 5200, 3800),
    _hype("HyPE", 4600, 3100, 5350, 4550),
    _hype("HyPER", 4650, 3200, 5600, 4050),
    *_pragmatic(
        "AdRIL with labels",
        "1.1 after 150,000 steps",
        "1.08, then falls to 0.6 after 750,000",
        "0.7 at its peak, falls to 0.3",
    ),
    *_pragmatic("GAIL, off-policy", "1.08 after 500,000 steps", "1.1", "1.05"),
    *_pragmatic("PWIL", "0.97", "1.0", "0.92"),
    *_pragmatic("BC", "1.03", "0.49", "0.16"),
]
