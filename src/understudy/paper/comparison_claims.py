"""Stored results beside what the paper claims by round, as a range or as a statement: on-Q moments, theory, compute."""

from pathlib import Path

import numpy as np

from understudy.core.statistics import Sample, holm, less
from understudy.paper import off_q, published
from understudy.paper.comparison import LEVEL, NOT_YET, TITLES, Rows, markdown, read, spoken, verdicts
from understudy.paper.reproduce import with_error

TOLERANCE = 0.02
"""By how much an exponent over finite horizons may miss the one of the limit."""


def lander_table(results: Path) -> str:
    """LunarLander by round: DAgger point by point, DAeQuIL against the range that is known of it."""
    files = {25: "lander.csv", 1: "lander-one.csv"}
    ours = {
        (curve.algorithm, shown): curve.samples
        for shown, name in files.items()
        for curve in off_q.curves(_kind(read(results / name), "round"))
    }
    family = {
        (*key, x): (sample, published.lander(key[0])[x])
        for key, samples in ours.items()
        for x, sample in samples.items()
        if x in published.lander(key[0])
    }
    found, rounds = verdicts(family), range(11)
    rows: list[list[object]] = []
    for algorithm in ("dagger", "daequil"):
        theirs, band = published.lander(algorithm), published.LANDER_RANGE.get(algorithm)
        cells = [f"{theirs[x].mean:.0f}" if x in theirs else "" for x in rounds]
        if band is not None:
            cells = [
                f"{band.low:.0f} to {band.high:.0f}" if band.rounds[0] <= x <= band.rounds[1] else "" for x in rounds
            ]
        rows.append([algorithm, "published", "", *cells, published.SEEDS, ""])
        for shown in files:
            samples = ours.get((algorithm, shown), {})
            said = spoken({x: found[algorithm, shown, x] for x in rounds if (algorithm, shown, x) in found})
            if band is not None and samples:
                said = _within(samples, band)
            cells = [with_error(samples.get(x)) for x in rounds]
            size = next(iter(samples.values())).size if samples else ""
            rows.append([algorithm, "ours", shown, *cells, size, said if samples else NOT_YET])
    return markdown(["learner", "", "demonstrations", *map(str, rounds), "trials", "verdict, by round"], rows)


def _within(samples: dict[int, Sample], band: published.Range) -> str:
    """Where means lie, of the rounds that a range was published for."""
    first, last = band.rounds
    means = {x: samples[x].mean for x in range(first, last + 1) if x in samples}
    outside = {"ours is higher": [x for x in means if means[x] > band.high]}
    outside["ours is lower"] = [x for x in means if means[x] < band.low]
    parts = [f"{said} at {', '.join(map(str, xs))}" for said, xs in outside.items() if xs]
    return "; ".join(parts) or f"agrees: every mean of rounds {first} to {last} is in the range"


def forest_table(results: Path) -> str:
    """Forest: the published ranges of a round's distance, and whether DAeQuIL is above DAgger, as the paper says."""
    lines = read(results / "forest.csv")
    ours = {(curve.algorithm, curve.preset): curve for curve in off_q.curves(_kind(lines, "round"))}
    handed = {(curve.algorithm, curve.preset): curve for curve in off_q.curves(_kind(lines, "final"))}
    expert = next((row for row in read(results / "demo.csv") if row["task"] == "Forest"), None)
    theirs, mine, said = f"{published.FOREST_EXPERT:.0f}", "", NOT_YET
    if expert is not None:
        low, mean, high = (float(expert[f"expert_{end}"]) for end in ("low", "mean", "high"))
        mine = f"{mean:.1f} (95%: {low:.1f} to {high:.1f})"
        side = "ours is higher" if low > published.FOREST_EXPERT else "ours is lower"
        said = "agrees" if low <= published.FOREST_EXPERT <= high else side
    rows: list[list[object]] = [["the expert", theirs, mine, "", "", "", "", said]]
    base = next((curve for curve in ours.values() if curve.algorithm == "dagger"), None)
    for key, curve in ours.items():
        low, high = published.FOREST[curve.algorithm]
        table = np.array([curve.returns[x] for x in sorted(curve.returns)])
        means = table.mean(axis=1)
        outside = [x for x, mean in enumerate(means) if not low <= mean <= high]
        said = f"outside the published range at {', '.join(map(str, outside))}" if outside else "in the published range"
        if base is not None and curve is not base:
            xs = [x for x in sorted(curve.returns) if x and x in base.returns]
            chances = holm([less(base.samples[x], curve.samples[x]) for x in xs])
            above = [str(x) for x, chance in zip(xs, chances, strict=True) if chance < LEVEL]
            said += f"; above our DAgger at {', '.join(above) or 'no round'}"
        name = f"{curve.algorithm}, {curve.preset}"
        last = Sample.of(table[-3:].mean(axis=0))
        given = _one(next(iter(handed[key].samples.values()))) if key in handed else ""
        cells = [_range(low, high), _range(means.min(), means.max()), _range(table.min(), table.max())]
        tail = [_one(last), given, last.size, said]
        rows.append([name, *cells, *tail])
    if not ours:
        rows += [[name, _range(*band), *[""] * 5, NOT_YET] for name, band in published.FOREST.items()]
    head = ["learner", "published", "ours, means of rounds", "single trials", "last three rounds", "handed over"]
    return markdown([*head, "trials", "verdict, by round"], rows)


def theory_table(results: Path) -> str:
    """Exponents of the gap in T, beside the paper's statements."""
    slopes = {(row["name"], row["class"]): row["value"] for row in _part(results, "slope")}
    payoffs: dict[tuple[str, str], list[float]] = {}
    for row in _part(results, "payoff"):
        payoffs.setdefault((row["name"], row["class"]), []).append(float(row["value"]))
    rows: list[list[object]] = []
    for (name, held), (exponent, statement) in published.EXPONENTS.items():
        value = slopes.get((name, held))
        example, moments = name.split(", ")
        said = NOT_YET if value is None else _beside(float(value), exponent)
        shown = "" if value is None else f"{float(value):.3f}"
        known = payoffs.get((name, held), [])
        ends = f"{known[0]:.1e} to {known[-1]:.1e}" if known else ""
        rows.append([example, moments, held, ends, statement, exponent, shown, said])
    head = ["MDP", "moments", "held fixed", "payoff, from the shortest T to the longest", "the paper's statement"]
    return markdown([*head, "its exponent of T", "ours", "verdict"], rows)


def recoverability_table(results: Path) -> str:
    """H of the examples over classes of rewards, beside what the paper says of it."""
    found: dict[str, dict[str, str]] = {}
    for row in _part(results, "recoverability"):
        found.setdefault(row["name"], {})[row["class"]] = f"{float(row['value']):g}"
    labels = list(next(iter(found.values()), {NOT_YET: ""}))
    rows = [
        [name, said, *found.get(name, dict.fromkeys(labels, "")).values()]
        for name, said in published.RECOVERABILITY.items()
    ]
    return markdown(["MDP", "the paper", *labels], rows)


def compute_table(results: Path) -> str:
    """How much sooner AdVIL is at 90% of ValueDICE's end, where the paper says an order of magnitude."""
    rows: list[list[object]] = []
    for task in off_q.TASKS:
        found = {row["learner"]: row for row in read(results / f"off-q-compute-{task}.csv")}
        if "valuedice" not in found:
            rows.append([TITLES[task], "advil", "", "", NOT_YET])
            continue
        slow = found["valuedice"]
        for name, row in found.items():
            if name == "valuedice":
                continue
            ratio, said = "", "does not get there"
            if row["flop"]:
                times = float(slow["flop"]) / float(row["flop"])
                ratio, said = f"{times:.0f}", "agrees: ten times or more" if times >= 10 else "less than ten times"
            rows.append([TITLES[task], name, f"{row['steps']}; {slow['steps']}", ratio, said])
    return markdown(["task", "learner", "gradient steps; valuedice's", "times less FLOP", "verdict"], rows)


def _kind(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["x_kind"] == kind]


def _part(results: Path, part: str) -> Rows:
    return [row for row in read(results / "theory" / "theory.csv") if row["part"] == part]


def _beside(value: float, expected: float) -> str:
    if abs(value - expected) <= TOLERANCE:
        return "agrees"
    return "ours is higher" if value > expected else "ours is lower"


def _range(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}"


def _one(sample: Sample) -> str:
    return f"{sample.mean:.1f} ± {sample.standard_error:.1f}"
