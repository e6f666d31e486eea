"""Sections 4 and 5 of the paper, measured: exponents of the gap, recoverability, certificates, random MDPs' bounds.

Nothing is sampled from an MDP and nothing is learned: every number but milliseconds is exact, up to rounding in
float64. The random MDPs and their learners come from a seed.
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
from understudy.tabular.games import Game
from understudy.tabular.mdp import exact
from understudy.tabular.moments import MomentClass, q_box, reward_box
from understudy.tabular.recoverability import all_rewards, plus_minus, recoverability, recovers_within, state_rewards
from understudy.tabular.solvers import Side, Solution, solve

HORIZONS = (64, 128, 256, 512, 1024)
EPSILON = 1 / max(HORIZONS)
"""The payoff that is held fixed; times the longest horizon it must still be a probability."""
KAPPA = 2e-4
"""The classification error that is held fixed: an error of probability 1e-4 a step."""
SIDES: tuple[Side, ...] = ("primal", "dual")
GAMES: tuple[Moments, ...] = ("reward", "off-Q", "on-Q")


class Line(NamedTuple):
    """The gap against the horizon, for one construction of the proofs."""

    example: str
    moments: Moments
    fixed: str
    """What is held fixed, and over which class it is measured."""
    expected: float
    """The exponent that theory gives."""
    horizons: tuple[int, ...]
    payoffs: list[float]
    gaps: list[float]

    @property
    def limits(self) -> list[float]:
        """The upper bounds that the payoffs give."""
        return [bounds.upper_bound(self.moments, x, T) for x, T in zip(self.payoffs, self.horizons, strict=True)]

    @property
    def slope(self) -> float:
        return bounds.slope(self.horizons, self.gaps)


def lines(horizons: Sequence[int] = HORIZONS) -> list[Line]:
    """Slopes of the gap in T at a fixed payoff, and at a fixed classification error."""
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
    made = []
    for example, moments, fixed, expected, construct, error in table:
        found = [construct(error, horizon) for horizon in horizons]
        payoffs, gaps = [one.payoff for one in found], [one.gap for one in found]
        made.append(Line(example, moments, fixed, expected, tuple(horizons), payoffs, gaps))
    return made


class Constant(NamedTuple):
    """Recoverability of an example over a class of rewards, and where it is attained."""

    example: str
    rewards: str
    constant: float
    place: str
    sentence: str
    """What the paper says of the example."""


def constants(horizon: int = 16) -> list[Constant]:
    """H of LOOP, CLIFF and UNICYCLE, class by class."""
    said = {
        "LOOP": "1-recoverable",
        "CLIFF": "not H-recoverable for any H < T",
        "UNICYCLE": "not H-recoverable for any H < T",
    }
    made = []
    for example in (examples.loop(horizon), examples.cliff(horizon), examples.unicycle(horizon)):
        for label, rewards in (
            ("±r, the example's own", plus_minus(example.reward)),
            ("of state, in [−1, 1]", state_rewards()),
            ("all in [−1, 1]", all_rewards()),
        ):
            found = recoverability(example.mdp, example.expert, rewards)
            state = example.states[int(found.state)].translate(str.maketrans("", "", "{}"))
            place = f"t = {int(found.time)}, {state}, {example.actions[int(found.action)]}"
            made.append(Constant(example.name, label, float(found.constant), place, said[example.name]))
        within = recovers_within(example.mdp, example.expert)
        made.append(Constant(example.name, "steps to recover (4.5)", float(within), "", said[example.name]))
    return made


def game_and_class(
    moments: Moments, states: int, actions: int, horizon: int, seed: int = 0
) -> tuple[Game, MomentClass]:
    """A game on a random MDP, and the box of its moments."""
    mdp, expert, _, _ = bounds.random_instances(seed, 2, states, actions, horizon)
    single = jax.tree.map(lambda x: x[1], mdp)  # of the two the second has an expert that is not deterministic
    return Game(moments, single, expert[1]), reward_box(single) if moments == "reward" else q_box(single)


def solutions(states: int = 10, actions: int = 4, horizon: int = 20, delta: float = 0.01) -> list[Solution]:
    """All six combinations of game and side on one random MDP."""
    made = []
    for moments in GAMES:
        game, functions = game_and_class(moments, states, actions, horizon)
        made += [solve(game, functions, side, delta) for side in SIDES]
    return made


class Effort(NamedTuple):
    """Iterations that a solver needed, for one value of one dimension."""

    moments: str
    side: str
    dimension: str
    value: float
    iterations: int
    asked: float
    """What the proofs ask for, see `Solution.proof_bound_label`."""
    met: bool


def efforts(report: Callable[[int, int, dict[str, float]], None] | None = None) -> list[Effort]:
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
    made = []
    for index, (letter, value, shape, delta) in enumerate(sweep):
        for moments in GAMES:
            game, functions = game_and_class(moments, shape["states"], shape["actions"], shape["horizon"])
            for side in SIDES:
                found = solve(game, functions, side, delta)
                made.append(Effort(moments, side, letter, value, found.iterations, found.proof_bound, found.met))
        if report is not None:
            report(index + 1, len(sweep), {letter: float(value)})
    return made


class Map(NamedTuple):
    """A bound on many random MDPs."""

    moments: str
    label: str
    gaps: np.ndarray
    limits: np.ndarray

    @property
    def ratios(self) -> np.ndarray:
        return np.asarray(self.gaps / np.maximum(self.limits, 1e-300))


SHAPES = ((4, 3, 6), (3, 2, 12), (8, 4, 4), (2, 2, 20), (5, 5, 10))
"""(|S|, |A|, T) of the random MDPs."""


def maps(count: int = 10_000, seed: int = 0) -> list[Map]:
    """Every upper bound on `count` random MDPs of several shapes, beside the gap that it bounds."""
    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    each = -(-count // len(SHAPES))
    for index, shape in enumerate(SHAPES):
        for report in bounds.measure(*bounds.random_instances(seed + index, each, *shape)):
            found.setdefault((report.moments, report.label), []).append(
                (np.asarray(report.gap), np.asarray(report.bound))
            )
    return [Map(*key, *(np.concatenate(column) for column in zip(*parts, strict=True))) for key, parts in found.items()]


TREE_COLUMNS = (
    "paths",
    "all (t, s, a): reward, on-Q (U3)",
    "one path's: off-Q, history loss",
    "ms, reward best response",
    "ms, on one path's states",
)
"""Of `Tree`, beyond its size."""


class Tree(NamedTuple):
    """What a best response in TREE has to weigh, counted along the successors, and how long it takes."""

    actions: int
    horizon: int
    paths: int
    """Sequences of T actions, each to a leaf's edge of its own: what reward matching chooses among."""
    planned: int
    """(t, s, a) that can be reached: what its backward induction weighs. The on-Q game's own, U3, is the same one."""
    edges: int
    """(t, s, a) on the expert's path: what is left where states are given, as to off-Q on the expert's states, and to
    DAeQuIL's history loss on one collected path."""
    planned_ms: float
    """`Game.respond`, whose tables hold every state at every time: T times the states that can be reached."""
    edges_ms: float


def trees(sizes: Sequence[tuple[int, int]] = ((2, 4), (2, 8), (2, 12), (4, 4), (4, 8))) -> list[Tree]:
    """For each (|A|, T) a reward best response to f = −r, and one that is handed the expert's states."""
    made = []
    for actions, horizon in sizes:
        example = examples.tree(horizon, actions)
        available = np.asarray(example.mdp.available)
        planned = [int(available[states].sum()) for states in examples.reachable(example)]
        path = np.concatenate(examples.reachable(example, example.expert[0] > 0))
        game, f = Game("reward", example.mdp, example.expert), np.array(-example.reward)
        given = f[np.arange(horizon), path]
        counts = planned[-1], sum(planned), int(available[path].sum())
        spent = _milliseconds(game.respond, f), _milliseconds(respond_on_path, given)
        made.append(Tree(actions, horizon, *counts, *spent))
    return made


@exact
def respond_on_path(f: Float[Array, "t a"]) -> Int[Array, " t"]:
    """argmin_a f_t(s_t, a), where the states s_t are given: the best response of games that do not plan."""
    return jnp.argmin(f, axis=-1)


def _milliseconds(respond: Callable[[Any], Any], f: np.ndarray) -> float:
    """Of a call, the best of three after one that compiles."""
    respond(f)
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        respond(f)
        spent.append(time.perf_counter() - began)
    return 1000 * min(spent)


def rows(
    found: Sequence[Line],
    known: Sequence[Constant],
    solved: Sequence[Solution],
    sweep: Sequence[Map],
    grown: Sequence[Tree],
) -> list[list[Any]]:
    """Part, name, class, x, value: what the figure and the tables show (certificates at some forty iterations)."""
    made: list[list[Any]] = []
    for line in found:
        name = f"{line.example}, {line.moments}"
        made += [["gap", name, line.fixed, T, gap] for T, gap in zip(line.horizons, line.gaps, strict=True)]
        made += [["payoff", name, line.fixed, T, x] for T, x in zip(line.horizons, line.payoffs, strict=True)]
        made += [["upper bound", name, line.fixed, T, x] for T, x in zip(line.horizons, line.limits, strict=True)]
        made.append(["slope", name, line.fixed, "", line.slope])
    made += [["recoverability", one.example, one.rewards, one.place, one.constant] for one in known]
    for solution in solved:
        name, _, label = solution.label.rpartition(", F")
        last = len(solution.certificates) - 1
        few = np.unique(np.geomspace(1, last + 1, 40).astype(int) - 1)  # the whole history draws the figure
        made += [["certificate", name, f"F{label}", int(n), value] for n, value in solution.certificates[few]]
        made.append(["the proofs ask for", name, f"F{label}", solution.proof_bound_label, solution.proof_bound])
    for one in sweep:
        made.append(["largest gap / bound", one.moments, one.label, len(one.gaps), one.ratios.max()])
        made.append(["median gap / bound", one.moments, one.label, len(one.gaps), np.median(one.ratios)])
    for tree in grown:
        for label, value in zip(TREE_COLUMNS, tree[2:], strict=True):
            made.append(["tree", f"|A| = {tree.actions}", label, tree.horizon, value])
    return made
