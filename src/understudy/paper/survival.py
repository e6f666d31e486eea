"""No survival bonus by accident, on CartPole: learners of an expert that soon drops the pole, with absorbing states and
without.

The task pays a point for each step, and so does any reward that is positive everywhere: a learner that lives long looks
like one that has learned. Here the expert is bad at the task. It keeps the cart at half a metre a second without a look
at the pole, takes any action now and then, and is down in 16 steps. A learner that imitates it is, too; one that
outlives it was paid for living.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.collect.recording import record
from understudy.collect.rollouts import HostPolicy, rollout
from understudy.core.statistics import Sample
from understudy.data import Demonstrations
from understudy.evaluation import drawing as figures
from understudy.paper.reward import Curve, read
from understudy.paper.rounds import MADE, made
from understudy.studies import Entry, Protocol, Study, Task
from understudy.studies.report import table
from understudy.train.results import provenance

ENV = "CartPole-v1"
CART_SPEED = 1
"""Where the cart's velocity is in an observation."""
SPEED, CARELESS = 0.5, 0.3
"""The expert's speed in m/s, and how often it takes any action."""
EXPERT = "expert"
ROUND_STEPS, BATCH, HIDDEN = 1024, 128, (64, 64)
"""Small, since CartPole is: everything else is as it is by default."""
LABELS = "indicator"
"""The kernel whose rewards are labels."""
TICKS = (10, 20, 50, 100, 200, 500)


def poor_expert(seed: int) -> HostPolicy:
    """Pushes towards its speed, whatever the pole does, or anywhere."""
    random = np.random.default_rng(seed)

    def act(obs: np.ndarray) -> np.ndarray:
        anything, anyhow = random.random(len(obs)) < CARELESS, random.integers(2, size=len(obs))
        return np.where(anything, anyhow, obs[:, CART_SPEED] < SPEED)

    return act


def demonstrations(episodes: int) -> Demonstrations:
    """Episodes of the expert, which end in terminal states."""
    return record(ENV, poor_expert(0), episodes, seed=0)


def expert_line(episodes: int) -> dict[str, str]:
    """How long the expert lives, in episodes of their own, as a line of the results."""
    lived = rollout(ENV, poor_expert(1), episodes, seed=1).returns
    known = {
        "env": ENV,
        "algorithm": EXPERT,
        "x_kind": EXPERT,
        "episodes": episodes,
        "device": provenance()["device"],
        "mean_return": round(float(lived.mean()), 3),
        "std_return": round(float(lived.std()), 3),
        **dict(zip(MADE, made(), strict=True)),
    }
    return {name: str(known.get(name, "")) for name in table.COLUMNS}


LEARNERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("adril", {"balanced": False, "average_rounds": 0.0}),
    ("adril", {"balanced": False, "average_rounds": 0.0, "kernel": LABELS}),
    ("adril", {"balanced": True, "average_rounds": 0.0, "kernel": LABELS}),
    ("sqil", {"balanced": True}),
)
"""With their last policies: AdRIL otherwise as it is by default, with the labels of the indicator kernel, and with
balanced minibatches of them; SQIL."""


def learners(steps: int) -> list[Entry]:
    """All of them, each with absorbing states and without."""
    small = {"rounds": -(-steps // ROUND_STEPS), "round_steps": ROUND_STEPS, "batch_size": BATCH}
    chosen = []
    for algorithm, own in LEARNERS:
        for absorbing in (True, False):
            settings = {"absorbing": absorbing, **own, **small, "soft_q": {"hidden": HIDDEN}}
            chosen.append(Entry(algorithm, settings=settings, label=_label(_who(algorithm, own), absorbing)))
    return chosen


def study(demos: Path, steps: int, seeds: int, episodes: int) -> Study:
    """All of them, on the demonstrations of this file."""
    protocol = Protocol(tuple(range(seeds)), episodes, eval_every=ROUND_STEPS)
    tasks, entries = (Task(ENV, str(demos)),), tuple(learners(steps))
    return Study("survival", "No survival bonus by accident", tasks, entries, protocol)


def lengths(lines: Sequence[Mapping[str, str]]) -> tuple[Sample, list[Curve]]:
    """The expert's length and a curve for each learner, from the lines of the results."""
    found = next(line for line in lines if line["algorithm"] == EXPERT)
    expert = Sample(float(found["mean_return"]), float(found["std_return"]), int(found["episodes"]))
    return expert, read(lines)


def named(curve: Curve) -> tuple[str, bool]:
    """A learner as a person reads it, and whether it has absorbing states."""
    return _who(curve.algorithm, curve.settings), curve.settings["absorbing"]


def _who(algorithm: str, settings: Mapping[str, Any]) -> str:
    labels = settings.get("kernel") == LABELS
    return f"{algorithm}{', labels' * labels}{', balanced' * (labels and settings['balanced'])}"


def _label(who: str, absorbing: bool) -> str:
    return f"{who}, {'' if absorbing else 'no '}absorbing states"


def draw(lines: Sequence[Mapping[str, str]], path: Path) -> None:
    """The figure: length against environment steps, a line for each learner, and the expert's."""
    expert, curves = lengths(lines)
    picture, (axis,) = figures.figure(1, width=7.8, height=5.0)
    colors: dict[str, str] = {}
    for curve in curves:
        who, absorbing = named(curve)
        color = colors.setdefault(who, figures.LINES[len(colors)])
        figures.draw_points(axis, curve.samples, color, _label(who, absorbing), published=not absorbing)
    axis.axhline(expert.mean, color=figures.EXPERT, linewidth=1.5, label="the expert", zorder=0)
    axis.set(
        title=f"{ENV}: learners of an expert that soon drops the pole",
        xlabel="environment steps",
        ylabel="steps until the pole falls (mean ± standard error)",
        yscale="log",
        yticks=TICKS,
        yticklabels=TICKS,
    )
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.06))
    figures.save(picture, path)
