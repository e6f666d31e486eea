"""Measurements of sections 4 and 5: growth of the gap, recoverability, certificates, bounds on random MDPs, TREE.

Nothing is sampled from an MDP and nothing is learned. Every number except the milliseconds is exact up to float64
rounding. The random MDPs and their learners are generated from a seed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from understudy.game import Moments
from understudy.tabular import bounds, examples
from understudy.tabular.compiling import exact
from understudy.tabular.games import Game
from understudy.tabular.moments import MomentClass, q_box, reward_box
from understudy.tabular.recoverability import all_rewards, plus_minus, recoverability, recovers_within, state_rewards
from understudy.tabular.solvers import Side, Solution, solve

HORIZONS = (64, 128, 256, 512, 1024)
EPSILON = 1 / max(HORIZONS)
"""The fixed payoff. Times the longest horizon it must still be a probability."""
KAPPA = 2e-4
"""The fixed classification error: an error of probability 1e-4 per step."""
SIDES: tuple[Side, ...] = ("primal", "dual")
GAMES: tuple[Moments, ...] = ("reward", "off-Q", "on-Q")


class GapGrowth(NamedTuple):
    """The imitation gap by horizon, for one construction of the proofs."""

    example: str
    moments: Moments
    fixed: str
    """The quantity that is held fixed, and the function class that it is measured over."""
    expected: float
    """The exponent in theory."""
    horizons: tuple[int, ...]
    payoffs: list[float]
    gaps: list[float]

    @property
    def upper_bounds(self) -> list[float]:
        """Upper bounds on the gap from the payoffs."""
        return [bounds.upper_bound(self.moments, x, T) for x, T in zip(self.payoffs, self.horizons, strict=True)]

    @property
    def slope(self) -> float:
        return bounds.slope(self.horizons, self.gaps)


def gap_growth(horizons: Sequence[int] = HORIZONS) -> list[GapGrowth]:
    """The gap by horizon at a fixed payoff, and at a fixed classification error."""
    reward, values = "ε over F_r/2", "ε over the box of F_Q/2T"
    table: list[tuple[str, Moments, str, float, Callable[[float, int], bounds.Construction], float]] = [
        ("CLIFF", "reward", reward, 1, bounds.cliff_reward, EPSILON),
        ("CLIFF", "off-Q", values, 2, bounds.cliff_off_q, EPSILON),
        ("CLIFF", "on-Q", values, 2, bounds.cliff_on_q, EPSILON),
        ("CLIFF", "on-Q", "error in s_0, as in the paper's proof", 1, bounds.cliff_on_q_verbatim, EPSILON),
        ("LOOP", "reward", reward, 1, bounds.loop_reward, EPSILON),
        ("LOOP", "off-Q", values, 2, bounds.loop_off_q, EPSILON),
        ("LOOP", "on-Q", values, 1, bounds.loop_on_q, EPSILON),
        ("UNICYCLE", "on-Q", "κ, classification error", 2, bounds.unicycle_classification, KAPPA),
        ("LOOP", "on-Q", "κ, classification error", 1, bounds.loop_classification, KAPPA),
    ]
    growth = []
    for example, moments, fixed, expected, construct, error in table:
        constructions = [construct(error, horizon) for horizon in horizons]
        payoffs, gaps = [one.payoff for one in constructions], [one.gap for one in constructions]
        growth.append(GapGrowth(example, moments, fixed, expected, tuple(horizons), payoffs, gaps))
    return growth


class ExampleRecoverability(NamedTuple):
    """Recoverability of an example over a class of rewards, and where it is attained."""

    example: str
    rewards: str
    constant: float
    attained_at: str
    statement: str
    """The paper's statement about the example."""


def example_recoverability(horizon: int = 16) -> list[ExampleRecoverability]:
    """H of LOOP, CLIFF and UNICYCLE over each class of rewards."""
    statements = {
        "LOOP": "1-recoverable",
        "CLIFF": "not H-recoverable for any H < T",
        "UNICYCLE": "not H-recoverable for any H < T",
    }
    rows = []
    for example in (examples.loop(horizon), examples.cliff(horizon), examples.unicycle(horizon)):
        statement = statements[example.name]
        for label, rewards in (
            ("±r, the example's own", plus_minus(example.reward)),
            ("of state, in [−1, 1]", state_rewards()),
            ("all in [−1, 1]", all_rewards()),
        ):
            largest = recoverability(example.mdp, example.expert, rewards)
            state = example.states[int(largest.state)].translate(str.maketrans("", "", "{}"))
            where = f"t = {int(largest.time)}, {state}, {example.actions[int(largest.action)]}"
            rows.append(ExampleRecoverability(example.name, label, float(largest.constant), where, statement))
        steps = float(recovers_within(example.mdp, example.expert))
        rows.append(ExampleRecoverability(example.name, "steps to recover (4.5)", steps, "", statement))
    return rows


def game_and_class(
    moments: Moments, states: int, actions: int, horizon: int, seed: int = 0
) -> tuple[Game, MomentClass]:
    """A game on a random MDP, and the box of its moment functions."""
    mdp, expert, _, _ = bounds.random_instances(seed, 2, states, actions, horizon)
    single = jax.tree.map(lambda x: x[1], mdp)  # the second instance has a stochastic expert
    return Game(moments, single, expert[1]), reward_box(single) if moments == "reward" else q_box(single)


def solutions(states: int = 10, actions: int = 4, horizon: int = 20, delta: float = 0.01) -> list[Solution]:
    """Equilibria of all six combinations of game and side on one random MDP."""
    solved = []
    for moments in GAMES:
        game, functions = game_and_class(moments, states, actions, horizon)
        solved += [solve(game, functions, side, delta) for side in SIDES]
    return solved


class SolverIterations(NamedTuple):
    """Iterations of a solver, for one value of one dimension."""

    moments: str
    side: str
    dimension: str
    value: float
    iterations: int
    proof_bound: float
    """The number in the proofs, see `Solution.proof_bound_label`."""
    met: bool


def solver_iterations(report: Callable[[int, int, dict[str, float]], None] | None = None) -> list[SolverIterations]:
    """Iterations against δ, T, |S| and |A|, around |S| = 10, |A| = 4, T = 20, δ = 0.02."""
    base = {"states": 10, "actions": 4, "horizon": 20}
    sweep: list[tuple[str, float, dict[str, int], float]] = [
        ("δ", delta, base, delta) for delta in (0.1, 0.05, 0.02, 0.01, 0.005)
    ]
    for name, letter, choices in (
        ("horizon", "T", (5, 10, 20, 40, 80)),
        ("states", "|S|", (5, 10, 20, 40, 80)),
        ("actions", "|A|", (2, 4, 8, 16, 32)),
    ):
        sweep += [(letter, value, {**base, name: value}, 0.02) for value in choices]
    rows = []
    for index, (letter, value, shape, delta) in enumerate(sweep):
        for moments in GAMES:
            game, functions = game_and_class(moments, shape["states"], shape["actions"], shape["horizon"])
            for side in SIDES:
                one = solve(game, functions, side, delta)
                rows.append(SolverIterations(moments, side, letter, value, one.iterations, one.proof_bound, one.met))
        if report is not None:
            report(index + 1, len(sweep), {letter: float(value)})
    return rows


class BoundCheck(NamedTuple):
    """An upper bound on many random MDPs, and the gaps that it bounds."""

    moments: str
    label: str
    gaps: np.ndarray
    bounds: np.ndarray

    @property
    def ratios(self) -> np.ndarray:
        return np.asarray(self.gaps / np.maximum(self.bounds, 1e-300))


SHAPES = ((4, 3, 6), (3, 2, 12), (8, 4, 4), (2, 2, 20), (5, 5, 10))
"""(|S|, |A|, T) of the random MDPs."""


def check_bounds(count: int = 10_000, seed: int = 0) -> list[BoundCheck]:
    """Every upper bound and its gap on `count` random MDPs of several shapes."""
    parts: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    per_shape = -(-count // len(SHAPES))
    for index, shape in enumerate(SHAPES):
        for report in bounds.measure(*bounds.random_instances(seed + index, per_shape, *shape)):
            values = np.asarray(report.gap), np.asarray(report.bound)
            parts.setdefault((report.moments, report.label), []).append(values)
    return [BoundCheck(*key, *map(np.concatenate, zip(*values, strict=True))) for key, values in parts.items()]


TREE_COLUMNS = (
    "paths",
    "all (t, s, a): reward, on-Q (U3)",
    "one path's: off-Q, history loss",
    "ms, reward best response",
    "ms, on one path's states",
)
"""Columns of `TreeCost` after its size."""


class TreeCost(NamedTuple):
    """The number of choices that a best response in TREE compares, and its time."""

    actions: int
    horizon: int
    paths: int
    """Sequences of T actions, each to a different leaf: the policies that reward matching chooses among."""
    planned: int
    """Reachable (t, s, a): the size of its backward induction, and of the best response in the on-Q game (U3)."""
    edges: int
    """(t, s, a) on the expert's path: enough where states are given, as in off-Q, and in DAeQuIL's loss on one path."""
    planned_ms: float
    """Time of `Game.respond`, whose tables hold every state at every time: T times the reachable states."""
    edges_ms: float


def tree_costs(sizes: Sequence[tuple[int, int]] = ((2, 4), (2, 8), (2, 12), (4, 4), (4, 8))) -> list[TreeCost]:
    """For each (|A|, T): the reward best response to f = −r, and the best response on the expert's states."""
    rows = []
    for actions, horizon in sizes:
        example = examples.tree(horizon, actions)
        available = np.asarray(example.mdp.available)
        planned = [int(available[states].sum()) for states in examples.reachable(example)]
        path = np.concatenate(examples.reachable(example, example.expert[0] > 0))
        game, f = Game("reward", example.mdp, example.expert), np.array(-example.reward)
        on_path = f[np.arange(horizon), path]
        counts = planned[-1], sum(planned), int(available[path].sum())
        times = _milliseconds(game.respond, f), _milliseconds(respond_on_path, on_path)
        rows.append(TreeCost(actions, horizon, *counts, *times))
    return rows


@exact
def respond_on_path(f: Float[Array, "t a"]) -> Int[Array, " t"]:
    """argmin_a f_t(s_t, a), where the states s_t are given: the best response of games that do not plan."""
    return jnp.argmin(f, axis=-1)


def _milliseconds(respond: Callable[[Any], Any], f: np.ndarray) -> float:
    """The fastest of three calls, after one that compiles."""
    respond(f)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        respond(f)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def csv_rows(
    growth: Sequence[GapGrowth],
    recoverability_rows: Sequence[ExampleRecoverability],
    solved: Sequence[Solution],
    checks: Sequence[BoundCheck],
    trees: Sequence[TreeCost],
) -> list[list[Any]]:
    """Rows of theory.csv: part, name, class, x, value. Certificates are thinned to about forty iterations."""
    rows: list[list[Any]] = []
    for one in growth:
        name = f"{one.example}, {one.moments}"
        rows += [["gap", name, one.fixed, T, gap] for T, gap in zip(one.horizons, one.gaps, strict=True)]
        rows += [["payoff", name, one.fixed, T, x] for T, x in zip(one.horizons, one.payoffs, strict=True)]
        rows += [["upper bound", name, one.fixed, T, x] for T, x in zip(one.horizons, one.upper_bounds, strict=True)]
        rows.append(["slope", name, one.fixed, "", one.slope])
    rows += [["recoverability", one.example, one.rewards, one.attained_at, one.constant] for one in recoverability_rows]
    for solution in solved:
        name, _, label = solution.label.rpartition(", F")
        thinned = np.unique(np.geomspace(1, len(solution.certificates), 40).astype(int) - 1)
        rows += [["certificate", name, f"F{label}", int(n), value] for n, value in solution.certificates[thinned]]
        rows.append(["proof bound", name, f"F{label}", solution.proof_bound_label, solution.proof_bound])
    for check in checks:
        rows.append(["largest gap / bound", check.moments, check.label, len(check.gaps), check.ratios.max()])
        rows.append(["median gap / bound", check.moments, check.label, len(check.gaps), np.median(check.ratios)])
    for tree in trees:
        for label, value in zip(TREE_COLUMNS, tree[2:], strict=True):
            rows.append(["tree", f"|A| = {tree.actions}", label, tree.horizon, value])
    return rows
