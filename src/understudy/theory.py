"""`understudy theory`: the paper's bounds and equilibria, computed and drawn, over `experiments.theory`."""

import time
from pathlib import Path

import numpy as np

from understudy import display
from understudy.errors import check_whole
from understudy.experiments import theory
from understudy.results import provenance, write_csv
from understudy.storage import check_place

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
    check_place(place / "theory.csv")
    began = time.perf_counter()
    with display.working("exponents of the gap"):
        found = theory.lines()
    display.show(
        ["MDP", "moments", "held fixed", ">exponent of T", ">theory", ">gap, T = 64", ">T = 1024", ">payoff, T = 1024"],
        [
            [
                line.example,
                line.moments,
                line.fixed,
                f"{line.slope:.3f}",
                f"{line.expected:g}",
                f"{line.gaps[0]:.4g}",
                f"{line.gaps[-1]:.4g}",
                f"{line.payoffs[-1]:.3g}",
            ]
            for line in found
        ],
        "The imitation gap grows with the horizon (sections 4.2 to 4.5)",
    )
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
        f"Upper bounds on {len(sweep[0].gaps)} random MDPs",
    )
    with display.working("recoverability"):
        known = theory.constants()
    display.show(
        ["MDP (T = 16)", "rewards", ">H", "attained at", "the paper"],
        [[one.example, one.rewards, f"{one.constant:g}", one.place, one.sentence] for one in known],
        "Recoverability: the largest advantage over the expert's Q-functions",
    )
    with display.working("equilibria"):
        solved = theory.solutions()
    display.show(
        ["game", ">certificate", ">iterations", ">the theorem asks for"],
        [[one.label, f"{one.certificate:.4f}", str(one.iterations), f"{one.theorem:.1e}"] for one in solved],
        f"Equilibria by certificate, asked δ = {solved[0].delta:g} (|S| = 10, |A| = 4, T = 20)",
    )
    display.show(
        [">|A|", ">T", ">paths, |A|^T", ">(s, a) that reward matching weighs", ">off-Q and on-Q weigh"],
        [[str(x) for x in one] for one in theory.trees()],
        "The hidden cost of reward matching: TREE",
    )
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = [made["command"], versions, made["date"]]
    table = theory.rows(found, known, solved, sweep)
    write_csv(place / "theory.csv", HEADER, [[*row, *about] for row in table])
    theory.draw(found, solved, sweep, place / "theory.png")
    theory.draw_examples(place)
    print(f"\n{time.perf_counter() - began:.0f} s. The numbers: {place}/theory.csv. The figure: {place}/theory.png")
    if full:
        with display.progress_bar("iterations against δ, T, |S|, |A|") as report:
            needed = theory.efforts(report)
        header = ["moments", "side", "dimension", "value", "iterations", "theorem", "met"]
        rows = [[*one, *about] for one in needed]
        write_csv(place / "theory-iterations.csv", [*header, "command", "versions", "date"], rows)
        theory.draw_efforts(needed, place / "theory-iterations.png")
        print(f"Iterations: {place}/theory-iterations.csv and .png")
