"""The project's stored results beside the paper's, point by point, as Markdown tables.

Everything is computed from the CSV files of a folder of results and from `published`; nothing is trained or played.
What has no file, or no lines in its file, is "not measured yet".

Two means agree where Welch's two-sided test does not tell them apart at the 5% level, after Holm's correction over all
points of a table. Where no spread was published their mean is taken as exact, which makes ours differ sooner.
"""

import csv
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from understudy.core.statistics import Sample, apart, holm
from understudy.paper import figure_studies, off_q, published, reward
from understudy.paper.reproduce import with_error
from understudy.studies.plan import BUNDLED

AGREES, HIGHER, LOWER, NO_TEST = "agrees", "ours is higher", "ours is lower", "a single seed: no test"
NOT_YET = "not measured yet"
LEVEL = 0.05
TITLES = {"halfcheetah": "HalfCheetah", "ant": "Ant"}
Rows = list[dict[str, str]]
Pair = tuple[Sample, Sample]
"""Ours, theirs."""
K = TypeVar("K", bound=Hashable)


def verdicts(pairs: Mapping[K, Pair], corrected: bool = True) -> dict[K, str]:
    """Whether ours agrees with theirs, is higher or is lower, for each point of one family."""
    return _told({key: ([ours], [theirs]) for key, (ours, theirs) in pairs.items()}, corrected)


def _told(sides: Mapping[K, tuple[list[Sample], list[Sample]]], corrected: bool = True) -> dict[K, str]:
    """The verdicts on means over several points each."""
    tested = {key: (ours, [*map(_exact, theirs)]) for key, (ours, theirs) in sides.items()}
    tested = {key: side for key, side in tested.items() if min(sample.size for sample in side[0]) > 1}
    chances = [apart(*side) for side in tested.values()]
    differing = dict(zip(tested, holm(chances) if corrected else chances, strict=True))
    found = dict.fromkeys(sides, NO_TEST)
    for key, chance in differing.items():
        ours, theirs = (np.mean([sample.mean for sample in side]) for side in sides[key])
        found[key] = AGREES if chance >= LEVEL else HIGHER if ours > theirs else LOWER
    return found


def _exact(sample: Sample) -> Sample:
    """A published mean without a spread, taken as exact."""
    return sample._replace(std=0.0) if np.isnan(sample.std) else sample


def spoken(found: Mapping[int, str], scale: int = 1, unit: str = "") -> str:
    """The verdicts of a curve in one phrase: how many points agree, and where the others are."""
    parts = [
        f"{said} at {', '.join(f'{x // scale:d}{unit}' for x, one in found.items() if one == said)}"
        for said in (HIGHER, LOWER, NO_TEST)
        if said in found.values()
    ]
    agreeing = sum(said == AGREES for said in found.values())
    if agreeing or not parts:
        parts.insert(0, f"agrees at {'all' if agreeing == len(found) else f'{agreeing} of'} {len(found)}")
    return "; ".join(parts)


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; bars inside cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def read(path: Path) -> Rows:
    """The lines of a CSV file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def off_q_table(results: Path, task: str) -> str:
    """Return by demonstrated trajectories: each published curve, and under it what we have of that algorithm."""
    env = off_q.TASKS[task]
    measured = off_q.curves(figure_studies.lines(results / f"off-q-{task}.csv"), "trajectories")
    ours = [(curve.name, curve) for curve in measured if off_q.theirs(curve, env)]
    plain = [row for row in read(results / "bc.csv") if row["env"] == env]
    ours += [("bc, no squashing, averaging or weight decay", curve) for curve in off_q.curves(plain)]
    halfway = read(results / f"off-q-training-{task}-advil-released.csv")
    halfway = [row for row in halfway if row["x"] == "50000"]
    ours += [("advil (released), after 50,000 steps", curve) for curve in off_q.curves(halfway, "trajectories")]
    family = {
        (name, count): (sample, published.off_q(env, curve.algorithm)[count])
        for name, curve in ours
        for count, sample in curve.samples.items()
        if count in published.off_q(env, curve.algorithm)
    }
    whole = {name: [*zip(*(pair for (who, _), pair in family.items() if who == name), strict=True)] for name, _ in ours}
    found, counts = verdicts(family), published.TRAJECTORIES
    over_all = _told({name: (list(sides[0]), list(sides[1])) for name, sides in whole.items()})
    rows: list[list[object]] = []
    for algorithm in ("bc", "valuedice", "advil"):
        theirs = published.off_q(env, algorithm)
        cells = [*(with_error(theirs[x]) for x in counts), _mean(theirs.values())]
        rows.append([algorithm, "published", *cells, published.SEEDS, "", ""])
        mine = [(name, curve) for name, curve in ours if curve.algorithm == algorithm]
        for name, curve in mine:
            said = {x: found[name, x] for x in counts if (name, x) in found}
            cells = [*(with_error(curve.samples.get(x)) for x in counts), _mean(whole[name][0])]
            rows.append([name, "ours", *cells, _size(curve.samples.values()), spoken(said), over_all[name]])
        if not mine:
            rows.append([algorithm, "ours", *[""] * (len(counts) + 2), NOT_YET, NOT_YET])
    head = ["learner", "", *map(str, counts), "mean of all", "seeds"]
    return markdown([*head, "verdict, by trajectories", "verdict, mean of all"], rows)


def papers(results: Path, task: str) -> dict[str, reward.Curve]:
    """Our runs of what the paper's figure of reward moments has, on its own demonstrations."""
    env = reward.TASKS[task]
    found = reward.read(figure_studies.lines(results / f"reward-{task}.csv"))
    own = [c for c in found if c.papers and c.expert is not None and round(c.expert) == published.EXPERT[env]]
    return {curve.published: curve for curve in reversed(own)}


def reward_pairs(results: Path, task: str) -> dict[tuple[str, int], Pair]:
    """Ours and theirs by learner and environment steps: the family of a task's table."""
    env = reward.TASKS[task]
    return {
        (name, x): (sample, published.reward(env, name)[x])
        for name, curve in papers(results, task).items()
        for x, sample in curve.samples.items()
        if x in published.reward(env, name)
    }


def reward_table(results: Path, task: str) -> str:
    """Return by environment steps, every published evaluation; what differs is marked."""
    env = reward.TASKS[task]
    pairs = reward_pairs(results, task)
    found = verdicts(pairs)
    names = [name for name in published.REWARD_TRAJECTORIES if published.reward(env, name)]
    names.sort(key=lambda name: -published.REWARD_TRAJECTORIES[name])
    header = ["steps"]
    for name in names:
        header += [f"{name}, ours", "published"]
    rows: list[list[object]] = []
    measured = papers(results, task)
    for x in published.reward(env, names[0]):
        row: list[object] = [f"{x // 1000}k"]
        for name in names:
            said = found.get((name, x), "")
            mark = f" (**{said.removeprefix('ours is ')}**)" if said in (HIGHER, LOWER) else ""
            mine = f"{with_error(pairs[name, x][0])}{mark}" if said else "" if name in measured else NOT_YET
            row += [mine, with_error(published.reward(env, name)[x])]
        rows.append(row)
    return markdown(header, rows)


def reward_verdicts(results: Path) -> str:
    """The two tables of reward moments in a line for each learner: all shared points, and how runs end."""
    rows: list[list[object]] = []
    for task, env in reward.TASKS.items():
        pairs, measured = reward_pairs(results, task), papers(results, task)
        shared = {name: [x for who, x in pairs if who == name] for name in measured}
        ends = {name: _ending(curve, shared[name]) for name, curve in measured.items()}
        endings = {
            name: published.reward_ending(env, name)
            for name in published.REWARD_TRAJECTORIES
            if published.reward(env, name)
        }
        found, before = verdicts(pairs), verdicts(pairs, corrected=False)
        late = verdicts({name: (ends[name].last_five, endings[name].last_five) for name in ends})
        for name, theirs in endings.items():
            row: list[object] = [TITLES[task], name, published.REWARD_TRAJECTORIES[name]]
            five, lowest = with_error(theirs.last_five), f"{theirs.lowest:.0f}"
            if name not in measured:
                rows.append([*row, "", "", f"–; {five}", f"–; {lowest}", NOT_YET, "", NOT_YET])
                continue
            xs, mine = shared[name], ends[name]
            means = "; ".join(_mean(pairs[name, x][side] for x in xs) for side in (0, 1))
            differing = sum(before[name, x] != AGREES for x in xs)
            row += [_size(pairs[name, x][0] for x in xs), means, f"{with_error(mine.last_five)}; {five}"]
            said = spoken({x: found[name, x] for x in xs}, 1000, "k")
            rows.append([*row, f"{mine.lowest:.0f}; {lowest}", said, f"{differing} of {len(xs)}", late[name]])
    head = ["task", "learner", "trajectories", "seeds", "mean of all points", "last five", "lowest of the last ten"]
    return markdown([*head, "verdict, by steps", "apart before Holm", "verdict, last five"], rows)


def _ending(curve: reward.Curve, xs: Sequence[int]) -> published.Ending:
    """How a curve ends, of the evaluations that the published one has too."""
    last = np.array([curve.returns[x] for x in sorted(xs)[-10:]])
    return published.Ending(Sample.of(last[-5:].mean(axis=0)), float(last.min()))


def reward_ends(results: Path) -> str:
    """Everything of ours with reward moments: on the way, at the end, and what is handed over."""
    shown = (50_000, 100_000, 200_000, 300_000, 400_000)
    rows: list[list[object]] = []
    for task, env in reward.TASKS.items():
        lines = figure_studies.lines(results / f"reward-{task}.csv")
        for curve in reward.read(lines):
            theirs = curve.papers and round(curve.expert or 0) == published.EXPERT[env]
            cells = [with_error(curve.samples.get(x)) for x in shown]
            ends = [with_error(curve.last), f"{curve.lowest:.0f}", with_error(curve.handed_over)]
            source = "bundled" if curve.bundled else "the paper's"
            rows.append([TITLES[task], curve.name, source, "yes" if theirs else "no", *cells, *ends])
    head = ["task", "learner", "demonstrations", "in the paper", *(f"{x // 1000}k" for x in shown)]
    return markdown([*head, "last", "lowest of a seed in the last ten", "handed over"], rows or [[NOT_YET]])


def bc_table(results: Path) -> str:
    """The supplement's table: the expert, and cloning with enough data."""
    lines = figure_studies.lines(results / "bc-table.csv")
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for line in lines:
        groups.setdefault((line["env"], line["demonstrations"].partition("@")[0]), []).append(line)
    ours = {key: Sample.of([float(line["mean_return"]) for line in some]) for key, some in groups.items()}
    experts = {key: float(some[0]["expert_return"]) for key, some in groups.items()}
    same = [key for key in ours if key[1] != BUNDLED and round(experts[key]) == published.EXPERT[key[0]]]
    theirs = {env: Sample(mean, float("nan"), published.SEEDS) for env, mean in published.BC_TABLE.items()}
    found = verdicts({key: (ours[key], theirs[key[0]]) for key in same})
    rows: list[list[object]] = []
    for task, env in off_q.TASKS.items():
        rows.append([TITLES[task], "published", f"{published.EXPERT[env]:.0f}", f"{theirs[env].mean:.0f}", "", ""])
        for key in (key for key in ours if key[0] == env):
            source = "bundled" if key[1] == BUNDLED else "the paper's" if key in same else key[1]
            said = found.get(key, "another expert: not compared")
            rows.append(["", source, f"{experts[key]:.0f}", with_error(ours[key]), ours[key].size, said])
        if not any(key[0] == env for key in same):
            rows.append(["", "the paper's", "", "", "", NOT_YET])
    return markdown(["task", "demonstrations", "expert", "bc", "seeds", "verdict"], rows)


def _size(samples: Iterable[Sample]) -> str:
    """How many seeds, from the least to the most where points differ."""
    sizes = sorted({sample.size for sample in samples})
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _mean(samples: Iterable[Sample]) -> str:
    return f"{np.mean([sample.mean for sample in samples]):.0f}"
