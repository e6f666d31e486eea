"""Absorbing states prevent an accidental survival bonus: AdRIL and SQIL on CartPole with an expert that falls early.

The task pays one point per step, and so does any reward that is positive everywhere. A learner that survives longer
then looks like a good one. Here the expert is bad: it keeps the cart at 0.5 m/s without looking at the pole, sometimes
acts at random, and falls after 16 steps. A learner that imitates it falls too; one that survives longer was rewarded
for surviving. `understudy reproduce survival` runs it, with and without absorbing states.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from understudy.collect.recording import record
from understudy.collect.rollouts import HostPolicy, rollout
from understudy.core import display
from understudy.core.errors import RunError, check_whole
from understudy.core.options import Path_, default
from understudy.core.statistics import Sample
from understudy.data import Demonstrations
from understudy.evaluation import drawing
from understudy.game import DEFAULT
from understudy.paper import figure_studies
from understudy.paper.formatting import with_error
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.paper.reward import read
from understudy.studies import Entry, Protocol, Store, Study, Task
from understudy.studies.curves import Curve
from understudy.studies.groups import study_records
from understudy.studies.report import table
from understudy.studies.running import run
from understudy.train.tables import provenance, write_csv

ENV = "CartPole-v1"
CART_VELOCITY = 1
"""Index of the cart's velocity in the observation."""
TARGET_VELOCITY, RANDOM_ACTIONS = 0.5, 0.3
"""The expert's target velocity in m/s, and its probability of a random action."""
EXPERT = "expert"
ROUND_STEPS, BATCH_SIZE, HIDDEN = 1024, 128, (64, 64)
"""Small, because CartPole is. All other settings are the defaults."""
LABELS = "indicator"
"""The kernel whose rewards are labels."""
PRESETS = {"adril": "plain"}
"""The preset of an algorithm, if it is not the default."""
TICKS = (10, 20, 50, 100, 200, 500)
LEARNERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("adril", {"balanced": False, "average_rounds": 0.0}),
    ("adril", {"balanced": False, "average_rounds": 0.0, "kernel": LABELS}),
    ("adril", {"balanced": True, "average_rounds": 0.0, "kernel": LABELS}),
    ("sqil", {"balanced": True}),
)
"""AdRIL, AdRIL with the indicator kernel, the same with balanced minibatches, and SQIL; all without averaging."""


def reproduce_survival(
    trajectories: int = 20,
    steps: int = 20_480,
    seeds: int = 4,
    episodes: int = 20,
    work: Annotated[Path_, default("runs/survival")] = None,
    out: Annotated[Path_, default("docs/results/survival.csv")] = None,
) -> None:
    """Episode length of AdRIL and SQIL that imitate an expert that falls early, with and without absorbing states.

    Args:
        trajectories: Demonstrated episodes.
        steps: Environment steps of each run.
        seeds: Seeds per learner.
        episodes: Episodes per evaluated policy.
        work: Directory of the finished cells; rerun the command to resume.
        out: CSV file of the lengths; the figure is written next to it.
    """
    check_whole(1, trajectories=trajectories, steps=steps, seeds=seeds, episodes=episodes)
    path = Path(out or "docs/results/survival.csv")
    figure_studies.check_out(path)
    figure_studies.read_rows(path)  # raises before training if the file has other columns
    directory = Path(work or "runs/survival")
    demos = directory.parent / f"{directory.name}-{trajectories}-demos.npz"
    record_demonstrations(trajectories).save(str(demos))
    study = make_study(demos, steps, seeds, episodes)
    summary = run(study, directory, jobs=1)
    if summary.failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in summary.failed.items())
        raise RunError(f"some learners failed: {reasons}. Finished cells are in {directory}")
    rows = [expert_row(1000), *table.csv_rows(study_records(study.groups(), Store(directory)))]
    write_csv(path, table.COLUMNS, (list(row.values()) for row in rows))
    draw(rows, path.with_suffix(".png"))
    _print(rows)
    print(f"\nLengths: {path}. Figure: {path.with_suffix('.png')}")


def poor_expert(seed: int) -> HostPolicy:
    """An expert that pushes towards its target velocity, whatever the pole does, or at random."""
    random = np.random.default_rng(seed)

    def act(obs: np.ndarray) -> np.ndarray:
        is_random, action = random.random(len(obs)) < RANDOM_ACTIONS, random.integers(2, size=len(obs))
        return np.where(is_random, action, obs[:, CART_VELOCITY] < TARGET_VELOCITY)

    return act


def record_demonstrations(episodes: int) -> Demonstrations:
    """Episodes of the expert, which end in terminal states."""
    return record(ENV, poor_expert(0), episodes, seed=0)


def expert_row(episodes: int) -> dict[str, str]:
    """The expert's episode length, from new episodes, as a row of the results."""
    lengths = rollout(ENV, poor_expert(1), episodes, seed=1).returns
    values = {
        "env": ENV,
        "algorithm": EXPERT,
        "x_kind": EXPERT,
        "episodes": episodes,
        "device": provenance()["device"],
        "mean_return": round(float(lengths.mean()), 3),
        "std_return": round(float(lengths.std()), 3),
        **dict(zip(PROVENANCE, provenance_columns(), strict=True)),
    }
    return {name: str(values.get(name, "")) for name in table.COLUMNS}


def make_study(demos: Path, steps: int, seeds: int, episodes: int) -> Study:
    """All learners on the demonstrations of this file."""
    protocol = Protocol(tuple(range(seeds)), episodes, eval_every=ROUND_STEPS)
    tasks, entries = (Task(ENV, str(demos)),), tuple(learners(steps))
    return Study("survival", "Absorbing states and the survival bonus", tasks, entries, protocol)


def learners(steps: int) -> list[Entry]:
    """All learners, each with and without absorbing states."""
    small = {"rounds": -(-steps // ROUND_STEPS), "round_steps": ROUND_STEPS, "batch_size": BATCH_SIZE}
    entries = []
    for algorithm, own in LEARNERS:
        for absorbing in (True, False):
            settings = {"absorbing": absorbing, **own, **small, "soft_q": {"hidden": HIDDEN}}
            entries.append(
                Entry(
                    algorithm, PRESETS.get(algorithm, DEFAULT), settings, label=_label(_name(algorithm, own), absorbing)
                )
            )
    return entries


def read_lengths(rows: Sequence[Mapping[str, str]]) -> tuple[Sample, list[Curve]]:
    """The expert's episode length, and one curve per learner."""
    row = next(row for row in rows if row["algorithm"] == EXPERT)
    expert = Sample(float(row["mean_return"]), float(row["std_return"]), int(row["episodes"]))
    return expert, read(rows)


def describe(curve: Curve) -> tuple[str, bool]:
    """A learner's name, and whether it has absorbing states."""
    return _name(curve.algorithm, curve.settings), curve.settings["absorbing"]


def _name(algorithm: str, settings: Mapping[str, Any]) -> str:
    labels = settings.get("kernel") == LABELS
    return f"{algorithm}{', labels' * labels}{', balanced' * (labels and settings['balanced'])}"


def _label(name: str, absorbing: bool) -> str:
    return f"{name}, {'' if absorbing else 'no '}absorbing states"


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Draw the episode length by environment steps: one line per learner, and the expert's."""
    expert, curves = read_lengths(rows)
    figure, (axis,) = drawing.figure(1, width=7.8, height=5.0)
    colors: dict[str, str] = {}
    for curve in curves:
        name, absorbing = describe(curve)
        color = colors.setdefault(name, drawing.LINES[len(colors)])
        drawing.draw_points(axis, curve.samples, color, _label(name, absorbing), published=not absorbing)
    axis.axhline(expert.mean, color=drawing.EXPERT, linewidth=1.5, label="the expert", zorder=0)
    axis.set(
        title=f"{ENV}: imitation of an expert that falls early",
        xlabel="environment steps",
        ylabel="episode length (mean ± standard error over seeds)",
        yscale="log",
        yticks=TICKS,
        yticklabels=TICKS,
    )
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.06))
    drawing.save(figure, path)


def _print(rows: Sequence[Mapping[str, str]]) -> None:
    """Print each learner's episode length at the end of training, its longest, and that of its final policy."""
    expert, curves = read_lengths(rows)
    table_rows: list[list[object]] = []
    for curve in curves:
        longest = max(means.max() for means in curve.returns.values())
        name, absorbing = describe(curve)
        numbers = [with_error(curve.last_five, 1), f"{longest:.1f}", with_error(curve.final_sample, 1)]
        table_rows.append([name, "yes" if absorbing else "no", *numbers])
    title = (
        f"{ENV}: episode length in steps, mean ± standard error over seeds (the expert: {expert.mean:.1f}). "
        "Mean of the last five evaluations, longest of any evaluation, final policy"
    )
    display.show(("learner", "absorbing states", ">last five", ">longest", ">final policy"), table_rows, title)
