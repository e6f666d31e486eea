"""The project's stored results compared with the paper's, point by point, as Markdown tables.

Everything is computed from the CSV files of a folder of results and from `paper.published`. Nothing is trained or
evaluated. Results without a file, or without rows in their file, are "not measured yet".

Two means agree if Welch's two-sided test does not distinguish them at the 5% level, after Holm's correction over all
points of a table. If no spread was published, the published mean counts as exact, so ours differs sooner.
"""

import csv
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from understudy.core.statistics import Sample, holm, p_different
from understudy.paper import figure_studies, off_q, published, reward
from understudy.paper.figure_studies import TASKS, TITLES, Rows
from understudy.paper.formatting import with_error
from understudy.studies.curves import Curve, read_curves
from understudy.studies.plan import BUNDLED

AGREES, HIGHER, LOWER, NO_TEST = "agrees", "ours is higher", "ours is lower", "one seed: no test"
NOT_YET = "not measured yet"
LEVEL = 0.05
Pair = tuple[Sample, Sample]
"""Ours and the published."""
K = TypeVar("K", bound=Hashable)


def verdicts(pairs: Mapping[K, Pair], corrected: bool = True) -> dict[K, str]:
    """Whether ours agrees with the published, is higher or is lower, for each point of one family."""
    return mean_verdicts({key: ([ours], [theirs]) for key, (ours, theirs) in pairs.items()}, corrected)


def mean_verdicts(sides: Mapping[K, tuple[list[Sample], list[Sample]]], corrected: bool = True) -> dict[K, str]:
    """The verdicts on means over several points."""
    exact = {key: (ours, [*map(_without_spread, theirs)]) for key, (ours, theirs) in sides.items()}
    tested = {key: side for key, side in exact.items() if min(sample.size for sample in side[0]) > 1}
    p_values = [p_different(*side) for side in tested.values()]
    results = dict.fromkeys(sides, NO_TEST)
    for key, p_value in zip(tested, holm(p_values) if corrected else p_values, strict=True):
        ours, theirs = (np.mean([sample.mean for sample in side]) for side in sides[key])
        results[key] = AGREES if p_value >= LEVEL else HIGHER if ours > theirs else LOWER
    return results


def _without_spread(sample: Sample) -> Sample:
    """A published mean without a spread counts as exact."""
    return sample._replace(std=0.0) if np.isnan(sample.std) else sample


def summarize_verdicts(verdicts_by_x: Mapping[int, str], scale: int = 1, unit: str = "") -> str:
    """The verdicts of a curve in one phrase: how many points agree, and which differ."""
    parts = [
        f"{verdict} at {', '.join(f'{x // scale:d}{unit}' for x, one in verdicts_by_x.items() if one == verdict)}"
        for verdict in (HIGHER, LOWER, NO_TEST)
        if verdict in verdicts_by_x.values()
    ]
    agreeing = sum(verdict == AGREES for verdict in verdicts_by_x.values())
    if agreeing or not parts:
        count = "all" if agreeing == len(verdicts_by_x) else f"{agreeing} of"
        parts.insert(0, f"agrees at {count} {len(verdicts_by_x)}")
    return "; ".join(parts)


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; bars inside cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def read(path: Path) -> Rows:
    """The rows of a CSV file; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def off_q_table(results: Path, task: str) -> str:
    """Return by demonstrated trajectories: each published curve, followed by our curves of that algorithm."""
    env = TASKS[task]
    ours = _off_q_curves(results, task)
    pairs = {
        (name, count): (sample, published.off_q(env, curve.algorithm)[count])
        for name, curve in ours
        for count, sample in curve.samples.items()
        if count in published.off_q(env, curve.algorithm)
    }
    sides = {name: [*zip(*(pair for (who, _), pair in pairs.items() if who == name), strict=True)] for name, _ in ours}
    by_point, counts = verdicts(pairs), published.TRAJECTORIES
    of_means = mean_verdicts({name: (list(side[0]), list(side[1])) for name, side in sides.items()})
    rows: list[list[object]] = []
    for algorithm in ("bc", "valuedice", "advil"):
        theirs = published.off_q(env, algorithm)
        cells = [*(with_error(theirs[x]) for x in counts), _mean(theirs.values())]
        rows.append([algorithm, "published", *cells, published.SEEDS, "", ""])
        own = [(name, curve) for name, curve in ours if curve.algorithm == algorithm]
        for name, curve in own:
            verdict = summarize_verdicts({x: by_point[name, x] for x in counts if (name, x) in by_point})
            cells = [*(with_error(curve.samples.get(x)) for x in counts), _mean(sides[name][0])]
            rows.append([name, "ours", *cells, _size(curve.samples.values()), verdict, of_means[name]])
        if not own:
            rows.append([algorithm, "ours", *[""] * (len(counts) + 2), NOT_YET, NOT_YET])
    head = ["learner", "", *map(str, counts), "mean of all", "seeds"]
    return markdown([*head, "verdict, by trajectories", "verdict, mean of all"], rows)


def _off_q_curves(results: Path, task: str) -> list[tuple[str, Curve]]:
    """Our curves by trajectories, with their names in the table."""
    env = TASKS[task]
    curves = off_q.read(figure_studies.read_rows(results / f"off-q-{task}.csv"))
    named = [(curve.name, curve) for curve in curves if off_q.published_points(curve, env)]
    plain = [row for row in read(results / "bc.csv") if row["env"] == env]
    named += [("bc, no squashing, averaging or weight decay", curve) for curve in read_curves(plain, "trajectories")]
    halfway = read(results / f"off-q-training-{task}-advil-released.csv")
    halfway = [row for row in halfway if row["x"] == "50000"]
    name = "advil (released), after 50,000 steps"
    return named + [(name, curve) for curve in read_curves(halfway, "steps", x="trajectories")]


def papers_curves(results: Path, task: str) -> dict[str, Curve]:
    """Our runs of the learners in the paper's figure of reward moments, on the paper's demonstrations."""
    env = TASKS[task]
    curves = reward.read(figure_studies.read_rows(results / f"reward-{task}.csv"))
    own = [
        curve
        for curve in curves
        if reward.is_published(curve) and curve.expert is not None and round(curve.expert) == published.EXPERT[env]
    ]
    return {reward.published_name(curve): curve for curve in reversed(own)}


def reward_pairs(results: Path, task: str) -> dict[tuple[str, int], Pair]:
    """Ours and the published by learner and environment steps: the family of a task's table.

    Ours is the first evaluation from these steps on. The published runs were evaluated before they trained too; ours
    were not.
    """
    env = TASKS[task]
    return {
        (name, x): (sample, theirs)
        for name, curve in papers_curves(results, task).items()
        for x, theirs in published.reward(env, name).items()
        if x > 0 and (sample := curve.sample(x, reward.WITHIN)) is not None
    }


def reward_table(results: Path, task: str) -> str:
    """Return by environment steps at every published evaluation; differences are marked."""
    env = TASKS[task]
    pairs = reward_pairs(results, task)
    by_point = verdicts(pairs)
    names = [name for name in published.REWARD_TRAJECTORIES if published.reward(env, name)]
    names.sort(key=lambda name: -published.REWARD_TRAJECTORIES[name])
    header = ["steps"]
    for name in names:
        header += [f"{name}, ours", "published"]
    rows: list[list[object]] = []
    measured = papers_curves(results, task)
    for x in published.reward(env, names[0]):
        row: list[object] = [f"{x // 1000}k"]
        for name in names:
            verdict = by_point.get((name, x), "")
            mark = f" (**{verdict.removeprefix('ours is ')}**)" if verdict in (HIGHER, LOWER) else ""
            ours = f"{with_error(pairs[name, x][0])}{mark}" if verdict else "" if name in measured else NOT_YET
            row += [ours, with_error(published.reward(env, name)[x])]
        rows.append(row)
    return markdown(header, rows)


def reward_verdicts(results: Path) -> str:
    """One row per task and learner of the figures of reward moments: all shared points, and how runs end."""
    rows = [row for task in TASKS for row in _reward_verdict_rows(results, task)]
    head = ["task", "learner", "trajectories", "seeds", "mean of all points", "last five", "lowest of the last ten"]
    return markdown([*head, "verdict, by steps", "different before Holm", "verdict, last five"], rows)


def _reward_verdict_rows(results: Path, task: str) -> list[list[object]]:
    env = TASKS[task]
    pairs, measured = reward_pairs(results, task), papers_curves(results, task)
    shared = {name: [x for who, x in pairs if who == name] for name in measured}
    ours = {name: _ending(curve, shared[name]) for name, curve in measured.items()}
    names = [name for name in published.REWARD_TRAJECTORIES if published.reward(env, name)]
    published_ends = {name: published.reward_ending(env, name) for name in names}
    by_point, uncorrected = verdicts(pairs), verdicts(pairs, corrected=False)
    of_ends = verdicts({name: (ours[name].last_five, published_ends[name].last_five) for name in ours})
    rows: list[list[object]] = []
    for name, theirs in published_ends.items():
        row: list[object] = [TITLES[task], name, published.REWARD_TRAJECTORIES[name]]
        five, lowest = with_error(theirs.last_five), f"{theirs.lowest:.0f}"
        if name not in measured:
            rows.append([*row, "", "", f"–; {five}", f"–; {lowest}", NOT_YET, "", NOT_YET])
            continue
        xs, end = shared[name], ours[name]
        means = "; ".join(_mean(pairs[name, x][side] for x in xs) for side in (0, 1))
        different = sum(uncorrected[name, x] != AGREES for x in xs)
        row += [_size(pairs[name, x][0] for x in xs), means, f"{with_error(end.last_five)}; {five}"]
        verdict = summarize_verdicts({x: by_point[name, x] for x in xs}, 1000, "k")
        rows.append([*row, f"{end.lowest:.0f}; {lowest}", verdict, f"{different} of {len(xs)}", of_ends[name]])
    return rows


def _ending(curve: Curve, xs: Sequence[int]) -> published.Ending:
    """The end of a curve, over the evaluations that the published one has too."""
    reached = [curve.reached(x, reward.WITHIN) for x in sorted(xs)[-10:]]
    last = np.array([curve.returns[x] for x in reached if x is not None])
    return published.Ending(Sample.of(last[-5:].mean(axis=0)), float(last.min()))


def reward_all(results: Path) -> str:
    """All our learners with reward moments: during training, at the end, and the final policy."""
    columns = (50_000, 100_000, 200_000, 300_000, 400_000)
    rows: list[list[object]] = []
    for task, env in TASKS.items():
        for curve in reward.read(figure_studies.read_rows(results / f"reward-{task}.csv")):
            in_paper = reward.is_published(curve) and round(curve.expert or 0) == published.EXPERT[env]
            cells = [with_error(curve.sample(x, reward.WITHIN)) for x in columns]
            ends = [with_error(curve.last), f"{curve.lowest_of_any_seed:.0f}", with_error(curve.final_sample)]
            source = "bundled" if curve.bundled else "the paper's"
            rows.append([TITLES[task], curve.name, source, "yes" if in_paper else "no", *cells, *ends])
    head = ["task", "learner", "demonstrations", "in the paper", *(f"{x // 1000}k" for x in columns)]
    return markdown([*head, "last", "lowest of a seed in the last ten", "final policy"], rows or [[NOT_YET]])


def bc_table(results: Path) -> str:
    """The supplement's table: the expert, and behavioral cloning on 25 trajectories."""
    groups: dict[tuple[str, str], Rows] = {}
    for row in figure_studies.read_rows(results / "bc-table.csv"):
        groups.setdefault((row["env"], row["demonstrations"].partition("@")[0]), []).append(row)
    ours = {key: Sample.of([float(row["mean_return"]) for row in own]) for key, own in groups.items()}
    experts = {key: float(own[0]["expert_return"]) for key, own in groups.items()}
    same = [key for key in ours if key[1] != BUNDLED and round(experts[key]) == published.EXPERT[key[0]]]
    theirs = {env: Sample(mean, float("nan"), published.SEEDS) for env, mean in published.BC_TABLE.items()}
    compared = verdicts({key: (ours[key], theirs[key[0]]) for key in same})
    rows: list[list[object]] = []
    for task, env in TASKS.items():
        rows.append([TITLES[task], "published", f"{published.EXPERT[env]:.0f}", f"{theirs[env].mean:.0f}", "", ""])
        for key in (key for key in ours if key[0] == env):
            source = "bundled" if key[1] == BUNDLED else "the paper's" if key in same else key[1]
            verdict = compared.get(key, "another expert: not compared")
            rows.append(["", source, f"{experts[key]:.0f}", with_error(ours[key]), ours[key].size, verdict])
        if not any(key[0] == env for key in same):
            rows.append(["", "the paper's", "", "", "", NOT_YET])
    return markdown(["task", "demonstrations", "expert", "bc", "seeds", "verdict"], rows)


def _size(samples: Iterable[Sample]) -> str:
    """The number of seeds, or its range if points differ."""
    sizes = sorted({sample.size for sample in samples})
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _mean(samples: Iterable[Sample]) -> str:
    return f"{np.mean([sample.mean for sample in samples]):.0f}"
