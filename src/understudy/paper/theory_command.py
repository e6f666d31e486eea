"""`understudy theory`: the paper's bounds and equilibria, computed and drawn, over `experiments.theory`."""

import time
from pathlib import Path

import numpy as np

from understudy.core import display
from understudy.core.errors import check_whole
from understudy.core.storage import check_place
from understudy.paper import theory, theory_figures
from understudy.train.results import provenance, write_csv

HEADER = ["part", "name", "class", "x", "value", "command", "versions", "date"]


def theory_command(out: str = "out/theory", mdps: int = 10_000, seed: int = 0, full: bool = False) -> None:
    """Measure section 4's bounds and section 5's solvers on finite MDPs: exponents, certificates, recoverability.

    Args:
        out: A directory for theory.csv, the figure theory.png and drawings of the example MDPs.
        mdps: Random MDPs that the upper bounds are checked on.
        seed: Seed of the random MDPs.
        full: Also the solvers' iterations against δ, T, |S| and |A| (two minutes more).
    """
    check_whole(1, mdps=mdps)
    check_whole(0, seed=seed)
    place = Path(out)
    for name in ("theory.csv", "theory.png", *(("theory-iterations.csv", "theory-iterations.png") if full else ())):
        check_place(place / name)
    place.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with display.working("exponents of the gap"):
        found = theory.lines()
    short, long = found[0].horizons[0], found[0].horizons[-1]
    display.show(
        [
            "MDP",
            "moments",
            "held fixed",
            ">exponent of T",
            ">theory",
            f">gap, T = {short}",
            f">T = {long}",
            f">upper bound, T = {long}",
            f">payoff, T = {long}",
        ],
        [
            [
                line.example,
                line.moments,
                line.fixed,
                f"{line.slope:.3f}",
                f"{line.expected:g}",
                f"{line.gaps[0]:.4g}",
                f"{line.gaps[-1]:.4g}",
                f"{line.limits[-1]:.4g}",
                f"{line.payoffs[-1]:.3g}",
            ]
            for line in found
        ],
        "The imitation gap grows with the horizon (sections 4.2 to 4.5)",
    )
    print("The upper bound is 2T times the payoff for reward moments, 2T² times it for off-Q and on-Q.")
    with display.working(f"{mdps} random MDPs"):
        sweep = theory.maps(mdps, seed)
    display.show(
        ["moments", "class", ">largest gap / bound", ">median", ">bounds broken"],
        [
            [
                one.moments,
                one.label,
                f"{one.ratios.max():.4f}",
                f"{np.median(one.ratios):.3f}",
                str(int((one.gaps > one.limits + 1e-9).sum())),
            ]
            for one in sweep
        ],
        f"\nUpper bounds on {len(sweep[0].gaps)} random MDPs",
    )
    print("Over F_QE/2T the on-Q payoff is the reward payoff over F_r/2, divided by T: those two rows are one check.")
    with display.working("recoverability"):
        known = theory.constants()
    display.show(
        ["MDP (T = 16)", "rewards", ">H", "attained at", "the paper"],
        [[one.example, one.rewards, f"{one.constant:g}", one.place, one.sentence] for one in known],
        "\nRecoverability: the largest advantage over the expert's Q-functions",
    )
    print("H is a supremum, and the paper's definition asks for |A| < H: UNICYCLE, with T − 1 for ±r, is H-recoverable")
    print("for H > T − 1 only. LOOP is 1-recoverable, as the paper says, for ±r only.")
    with display.working("equilibria"):
        solved = theory.solutions()
    display.show(
        ["game", ">certificate", ">iterations", ">the proofs ask for"],
        [[one.label, f"{one.certificate:.4f}", str(one.iterations), f"{one.proof_bound:.1e}"] for one in solved],
        f"\nEquilibria by certificate, asked δ = {solved[0].delta:g} (|S| = 10, |A| = 4, T = 20)",
    )
    for side in theory.SIDES:
        meanings = dict.fromkeys(one.proof_bound_label for one in solved if f", {side}, " in one.label)
        print(f"The proofs ask for, {side}: {'; '.join(meanings)}.")
    with display.working("trees"):
        grown = theory.trees()
    display.show(
        [">|A|", ">T", *(f">{label}" for label in theory.TREE_COLUMNS)],
        [[*map(str, one[:5]), *(f"{spent:.3f}" for spent in one[5:])] for one in grown],
        "\nThe hidden cost of reward matching: what a best response in TREE weighs",
    )
    print(
        "The on-Q game's own best response (U3) is planned as reward's is. |A| T edges are left where states are given:"
    )
    print("the expert's for off-Q, one collected path for DAeQuIL's history loss.")
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = [made["command"], versions, made["date"]]
    table = theory.rows(found, known, solved, sweep, grown)
    write_csv(place / "theory.csv", HEADER, [[*row, *about] for row in table])
    theory_figures.draw(found, solved, sweep, grown, place / "theory.png")
    theory_figures.draw_examples(place)
    print(f"\n{time.perf_counter() - began:.0f} s. The numbers: {place}/theory.csv. The figure: {place}/theory.png")
    if full:
        with display.progress_bar("iterations against δ, T, |S|, |A|") as report:
            needed = theory.efforts(report)
        header = ["moments", "side", "dimension", "value", "iterations", "asked", "met"]
        rows = [[*one, *about] for one in needed]
        write_csv(place / "theory-iterations.csv", [*header, "command", "versions", "date"], rows)
        theory_figures.draw_efforts(needed, place / "theory-iterations.png")
        print(f"Iterations: {place}/theory-iterations.csv and .png")
