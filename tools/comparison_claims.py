"""Stored results compared with the paper's claims by round, as a range or as a statement: on-Q, theory, compute."""

from pathlib import Path

import numpy as np

from comparison import AGREES, HIGHER, LEVEL, LOWER, NOT_YET, markdown, read, summarize_verdicts, verdicts
from understudy.core.statistics import Sample, holm, p_less
from understudy.paper import published
from understudy.paper.figure_studies import TASKS, TITLES, Rows
from understudy.paper.formatting import with_error
from understudy.studies.curves import Curve, read_curves

TOLERANCE = 0.02
"""Allowed error of an exponent over finite horizons."""


def lander_table(results: Path) -> str:
    """LunarLander by round: DAgger point by point, DAeQuIL against its published range."""
    files = {25: "lander.csv", 1: "lander-one.csv"}
    ours = {
        (curve.algorithm, trajectories): curve.samples
        for trajectories, name in files.items()
        for curve in read_curves(read(results / name), "round")
    }
    pairs = {
        (*key, x): (sample, published.lander(key[0])[x])
        for key, samples in ours.items()
        for x, sample in samples.items()
        if x in published.lander(key[0])
    }
    by_point, rounds = verdicts(pairs), range(11)
    rows: list[list[object]] = []
    for algorithm in ("dagger", "daequil"):
        theirs, band = published.lander(algorithm), published.LANDER_RANGE.get(algorithm)
        cells = [f"{theirs[x].mean:.0f}" if x in theirs else "" for x in rounds]
        if band is not None:
            cells = [_range(band.low, band.high) if band.rounds[0] <= x <= band.rounds[1] else "" for x in rounds]
        rows.append([algorithm, "published", "", *cells, published.SEEDS, ""])
        for trajectories in files:
            samples, key = ours.get((algorithm, trajectories), {}), (algorithm, trajectories)
            verdict = summarize_verdicts({x: by_point[*key, x] for x in rounds if (*key, x) in by_point})
            if band is not None and samples:
                verdict = _compare_range(samples, band)
            cells = [with_error(samples.get(x)) for x in rounds]
            size = next(iter(samples.values())).size if samples else ""
            rows.append([algorithm, "ours", trajectories, *cells, size, verdict if samples else NOT_YET])
    return markdown(["learner", "", "demonstrations", *map(str, rounds), "trials", "verdict, by round"], rows)


def _compare_range(samples: dict[int, Sample], band: published.Range) -> str:
    """Which means are outside the published range, over its rounds."""
    first, last = band.rounds
    means = {x: samples[x].mean for x in range(first, last + 1) if x in samples}
    outside = {HIGHER: [x for x in means if means[x] > band.high], LOWER: [x for x in means if means[x] < band.low]}
    parts = [f"{verdict} at {', '.join(map(str, xs))}" for verdict, xs in outside.items() if xs]
    return "; ".join(parts) or f"agrees: every mean of rounds {first} to {last} is in the range"


def forest_table(results: Path) -> str:
    """Forest: the published ranges of a round's distance, and whether DAeQuIL is above DAgger, as in the paper."""
    stored = read(results / "forest.csv")
    ours = {(curve.algorithm, curve.preset): curve for curve in read_curves(stored, "round")}
    rows = [_forest_expert(results)]
    dagger = next((curve for curve in ours.values() if curve.algorithm == "dagger"), None)
    for curve in ours.values():
        low, high = published.FOREST[curve.algorithm]
        table = np.array(list(curve.returns.values()))
        means = table.mean(axis=1)
        outside = [x for x, mean in enumerate(means) if not low <= mean <= high]
        verdict = "in the published range"
        if outside:
            verdict = f"outside the published range at {', '.join(map(str, outside))}"
        if dagger is not None and curve is not dagger:
            verdict += f"; above our DAgger at {', '.join(_rounds_above(curve, dagger)) or 'no round'}"
        last = Sample.of(table[-3:].mean(axis=0))
        final = "" if curve.final_sample is None else _with_error(curve.final_sample)
        cells = [_range(low, high), _range(means.min(), means.max()), _range(table.min(), table.max())]
        rows.append([f"{curve.algorithm}, {curve.preset}", *cells, _with_error(last), final, last.size, verdict])
    if not ours:
        rows += [[name, _range(*band), *[""] * 5, NOT_YET] for name, band in published.FOREST.items()]
    head = ["learner", "published", "ours, means of rounds", "single trials", "last three rounds", "final policy"]
    return markdown([*head, "trials", "verdict, by round"], rows)


def _forest_expert(results: Path) -> list[object]:
    expert = next((row for row in read(results / "demo.csv") if row["task"] == "Forest"), None)
    theirs, ours, verdict = f"{published.FOREST_EXPERT:.0f}", "", NOT_YET
    if expert is not None:
        low, mean, high = (float(expert[f"expert_{end}"]) for end in ("low", "mean", "high"))
        ours = f"{mean:.1f} (95%: {low:.1f} to {high:.1f})"
        side = HIGHER if low > published.FOREST_EXPERT else LOWER
        verdict = AGREES if low <= published.FOREST_EXPERT <= high else side
    return ["the expert", theirs, ours, "", "", "", "", verdict]


def _rounds_above(curve: Curve, base: Curve) -> list[str]:
    """Rounds after cloning in which a curve is significantly above another."""
    xs = [x for x in curve.returns if x and x in base.returns]
    p_values = holm([p_less(base.samples[x], curve.samples[x]) for x in xs])
    return [str(x) for x, p_value in zip(xs, p_values, strict=True) if p_value < LEVEL]


def theory_table(results: Path) -> str:
    """Exponents of the gap in T, next to the paper's statements."""
    slopes = {(row["name"], row["class"]): row["value"] for row in _part(results, "slope")}
    payoffs: dict[tuple[str, str], list[float]] = {}
    for row in _part(results, "payoff"):
        payoffs.setdefault((row["name"], row["class"]), []).append(float(row["value"]))
    rows: list[list[object]] = []
    for (name, fixed), (exponent, statement) in published.EXPONENTS.items():
        value = slopes.get((name, fixed))
        example, moments = name.split(", ")
        verdict = NOT_YET if value is None else _compare_exponent(float(value), exponent)
        ours = "" if value is None else f"{float(value):.3f}"
        values = payoffs.get((name, fixed), [])
        ends = f"{values[0]:.1e} to {values[-1]:.1e}" if values else ""
        rows.append([example, moments, fixed, ends, statement, exponent, ours, verdict])
    head = ["MDP", "moments", "held fixed", "payoff, from the shortest T to the longest", "the paper's statement"]
    return markdown([*head, "its exponent of T", "ours", "verdict"], rows)


def recoverability_table(results: Path) -> str:
    """H of the examples over classes of rewards, next to the paper's statement."""
    measured: dict[str, dict[str, str]] = {}
    for row in _part(results, "recoverability"):
        measured.setdefault(row["name"], {})[row["class"]] = f"{float(row['value']):g}"
    labels = list(next(iter(measured.values()), {NOT_YET: ""}))
    rows = [
        [name, statement, *measured.get(name, dict.fromkeys(labels, "")).values()]
        for name, statement in published.RECOVERABILITY.items()
    ]
    return markdown(["MDP", "the paper", *labels], rows)


def compute_table(results: Path) -> str:
    """How much less compute AdVIL needs for 90% of ValueDICE's final return; the paper says an order of magnitude."""
    rows: list[list[object]] = []
    for task in TASKS:
        learners = {row["learner"]: row for row in read(results / f"off-q-compute-{task}.csv")}
        if "valuedice" not in learners:
            rows.append([TITLES[task], "advil", "", "", NOT_YET])
            continue
        valuedice = learners.pop("valuedice")
        for name, row in learners.items():
            ratio, verdict = "", "does not reach it"
            if row["flop"]:
                times = float(valuedice["flop"]) / float(row["flop"])
                ratio, verdict = f"{times:.0f}", "agrees: ten times or more" if times >= 10 else "less than ten times"
            rows.append([TITLES[task], name, f"{row['steps']}; {valuedice['steps']}", ratio, verdict])
    return markdown(["task", "learner", "gradient steps; valuedice's", "times less FLOP", "verdict"], rows)


def _part(results: Path, part: str) -> Rows:
    return [row for row in read(results / "theory" / "theory.csv") if row["part"] == part]


def _compare_exponent(value: float, expected: float) -> str:
    if abs(value - expected) <= TOLERANCE:
        return AGREES
    return HIGHER if value > expected else LOWER


def _range(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}"


def _with_error(sample: Sample) -> str:
    return f"{sample.mean:.1f} ± {sample.standard_error:.1f}"
