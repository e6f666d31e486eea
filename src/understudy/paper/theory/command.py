"""`understudy theory`: compute, print and draw the paper's bounds and equilibria on finite MDPs."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from understudy.core import display
from understudy.core.errors import SettingError, check_whole
from understudy.core.options import Directory, Path_, default
from understudy.core.paths import check_file_path, check_new_file, check_own_file
from understudy.core.storage import make_directory
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.paper.theory import figures, measurements
from understudy.paper.theory.explorer.page import START, write_page
from understudy.paper.theory.measurements import BoundCheck, ExampleRecoverability, GapGrowth, TreeCost
from understudy.tabular.solvers import Solution
from understudy.train.tables import write_csv

HEADER = ["part", "name", "class", "x", "value", *PROVENANCE]


def theory_command(
    out: Directory = "out/theory",
    mdps: int = 10_000,
    seed: int = 0,
    full: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    page: Annotated[Path_, default("none")] = None,
) -> None:
    """Measure the bounds of section 4 and the solvers of section 5 on finite MDPs.

    Args:
        out: Directory for theory.csv, theory.png and drawings of the example MDPs.
        mdps: Random MDPs on which the upper bounds are checked.
        seed: Seed of the random MDPs.
        full: Also measure the solvers' iterations by δ, T, |S| and |A| (two more minutes).
        page: Write the interactive page into this HTML file instead: bounds with sliders, and a game round by round.
    """
    if page is not None:
        _write_page(Path(page), full)
        return
    check_whole(1, mdps=mdps)
    check_whole(0, seed=seed)
    directory = Path(out)
    _check_directory(directory, full)
    directory.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with display.working("growth of the gap"):
        growth = measurements.gap_growth()
    _print_growth(growth)
    with display.working(f"{mdps} random MDPs"):
        checks = measurements.check_bounds(mdps, seed)
    _print_checks(checks)
    with display.working("recoverability"):
        recoverability = measurements.example_recoverability()
    _print_recoverability(recoverability)
    with display.working("equilibria"):
        solved = measurements.solutions()
    _print_solutions(solved)
    with display.working("trees"):
        trees = measurements.tree_costs()
    _print_trees(trees)
    made = provenance_columns()
    rows = measurements.csv_rows(growth, recoverability, solved, checks, trees)
    write_csv(directory / "theory.csv", HEADER, [[*row, *made] for row in rows])
    figures.draw(growth, solved, checks, trees, directory / "theory.png")
    figures.draw_examples(directory)
    seconds = time.perf_counter() - start
    print(f"\n{seconds:.0f} s. Numbers: {directory}/theory.csv. Figure: {directory}/theory.png")
    if full:
        with display.progress_bar("iterations by δ, T, |S|, |A|") as report:
            iterations = measurements.solver_iterations(report)
        header = [*measurements.SolverIterations._fields, *PROVENANCE]
        write_csv(directory / "theory-iterations.csv", header, [[*one, *made] for one in iterations])
        figures.draw_iterations(iterations, directory / "theory-iterations.png")
        print(f"Iterations: {directory}/theory-iterations.csv and .png")


def _write_page(path: Path, full: bool) -> None:
    if full:
        raise SettingError("--page and --full: choose one, the page has no measurements of iterations")
    check_own_file(path, START)
    make_directory(path.parent)
    start = time.perf_counter()
    with display.working("tables of the page"):
        write_page(path)
    print(f"{time.perf_counter() - start:.0f} s. Open in a browser: {path}")


def _check_directory(directory: Path, full: bool) -> None:
    """Raise if the directory has files of the same names that this command has not written."""
    table = directory / "theory.csv"
    check_own_file(table, ",".join(HEADER))
    figure_names = ("theory.png", *(f"{name}.png" for name in figures.EXAMPLES))
    for name in (*figure_names, *(("theory-iterations.csv", "theory-iterations.png") if full else ())):
        (check_file_path if table.exists() else check_new_file)(directory / name)


def _print_growth(growth: Sequence[GapGrowth]) -> None:
    short, long = growth[0].horizons[0], growth[0].horizons[-1]
    columns = ["MDP", "moments", "held fixed", ">exponent of T", ">theory"]
    columns += [f">gap, T = {short}", f">T = {long}", f">upper bound, T = {long}", f">payoff, T = {long}"]
    rows = [
        [
            *(one.example, one.moments, one.fixed, f"{one.slope:.3f}", f"{one.expected:g}"),
            *(f"{one.gaps[0]:.4g}", f"{one.gaps[-1]:.4g}", f"{one.upper_bounds[-1]:.4g}", f"{one.payoffs[-1]:.3g}"),
        ]
        for one in growth
    ]
    display.show(columns, rows, "Growth of the imitation gap with the horizon (sections 4.2 to 4.5)")
    print("The upper bound is 2T times the payoff for reward moments, and 2T² times it for off-Q and on-Q.")


def _print_checks(checks: Sequence[BoundCheck]) -> None:
    rows = [
        [
            *(one.moments, one.label, f"{one.ratios.max():.4f}", f"{np.median(one.ratios):.3f}"),
            str(int((one.gaps > one.bounds + 1e-9).sum())),
        ]
        for one in checks
    ]
    columns = ["moments", "class", ">largest gap / bound", ">median", ">violations"]
    display.show(columns, rows, f"\nUpper bounds on {len(checks[0].gaps)} random MDPs")
    print("Over F_QE/2T the on-Q payoff is the reward payoff over F_r/2 divided by T, so these two rows agree.")


def _print_recoverability(rows: Sequence[ExampleRecoverability]) -> None:
    display.show(
        ["MDP (T = 16)", "rewards", ">H", "attained at", "the paper"],
        [[one.example, one.rewards, f"{one.constant:g}", one.attained_at, one.statement] for one in rows],
        "\nRecoverability: the largest advantage over the expert's Q-functions",
    )
    print("H is a supremum, and the paper's definition requires |A| < H: UNICYCLE, with T − 1 for ±r, is")
    print("H-recoverable only for H > T − 1. LOOP is 1-recoverable, as in the paper, only for ±r.")


def _print_solutions(solved: Sequence[Solution]) -> None:
    display.show(
        ["game", ">certificate", ">iterations", ">bound in the proof"],
        [[one.label, f"{one.certificate:.4f}", str(one.iterations), f"{one.proof_bound:.1e}"] for one in solved],
        f"\nEquilibria by certificate, requested δ = {solved[0].delta:g} (|S| = 10, |A| = 4, T = 20)",
    )
    for side in measurements.SIDES:
        labels = dict.fromkeys(one.proof_bound_label for one in solved if f", {side}, " in one.label)
        print(f"Bound in the proof, {side}: {'; '.join(labels)}.")


def _print_trees(trees: Sequence[TreeCost]) -> None:
    display.show(
        [">|A|", ">T", *(f">{label}" for label in measurements.TREE_COLUMNS)],
        [[*map(str, one[:5]), *(f"{spent:.3f}" for spent in one[5:])] for one in trees],
        "\nThe cost of reward matching: choices that a best response in TREE compares",
    )
    print("The best response in the on-Q game (U3) plans like that for reward moments. Where states are given,")
    print("|A| T edges are enough: the expert's states for off-Q, one collected path for DAeQuIL's loss.")
