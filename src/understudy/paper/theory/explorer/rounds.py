"""A small game between π and f, round by round: reward moments on a grid with two routes, primal and dual.

The expert takes the upper route with probability 2/3. f is any stationary function of (s, a) with |f| ≤ 1/2. The rounds
are those of `tabular.solvers.trace`, whose certificate is exact.
"""

from typing import Any

import numpy as np

from understudy.tabular import FiniteMDP, Game, reward_box
from understudy.tabular.planning import occupancy
from understudy.tabular.solvers import Side, Trace, trace

WIDTH, HEIGHT, HORIZON = 4, 3, 8
WALLS = ((1, 1), (2, 1))
"""Cells (column, row) that nobody enters. Row 0 is at the top."""
START, GOAL = (0, 1), (3, 1)
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Up, right, down, left."""
UPPER = 2 / 3
"""The share of the expert's episodes on the upper route."""
CELLS = tuple((x, y) for y in range(HEIGHT) for x in range(WIDTH) if (x, y) not in WALLS)
ROUNDS, SHOWN = 600, 45
"""Rounds that are played, and how many of them the page has."""
ALPHA = 0.01
"""Entropy weight of the dual's best response. A smaller one reaches smaller certificates, and needs more rounds."""
SIDES: tuple[Side, ...] = ("primal", "dual")


def grid_game() -> Game:
    """The game of reward moments on the grid. The goal keeps whoever enters it, and has one action."""
    index = {cell: state for state, cell in enumerate(CELLS)}
    count = len(CELLS)
    successors, available = np.zeros((count, 4), int), np.zeros((count, 4), bool)
    for (x, y), state in index.items():
        for action, (across, below) in enumerate(MOVES):
            ahead = index.get((x + across, y + below)) if (x, y) != GOAL else None
            successors[state, action] = state if ahead is None else ahead
            available[state, action] = ahead is not None
    available[index[GOAL], 0] = True
    up, right, down = np.eye(4)[:3]
    expert = np.where(available, 1.0, 0.0) / available.sum(-1, keepdims=True)  # uniform where it never is
    expert[index[START]] = UPPER * up + (1 - UPPER) * down
    for row, end in ((0, down), (2, up)):
        for x in range(WIDTH):
            expert[index[x, row]] = right if x < WIDTH - 1 else end
    mdp = FiniteMDP(successors, np.eye(count)[index[START]], HORIZON, available)
    return Game("reward", mdp, np.array(np.broadcast_to(expert, mdp.shape)))


def shown_rounds(rounds: int = ROUNDS, shown: int = SHOWN) -> np.ndarray:
    """The rounds that the page has: dense at first, from 1 to the last one."""
    return np.unique(np.rint(np.geomspace(1, rounds, shown)).astype(int))


def played(side: Side) -> Trace:
    """The rounds of one solver."""
    game = grid_game()
    return trace(game, reward_box(game.mdp, stationary=True), side, ROUNDS, ALPHA)


def game_data() -> dict[str, Any]:
    """Everything that the page needs. Shares of actions are percentages, f is in thousandths."""
    game, rounds = grid_game(), shown_rounds()
    sides = {}
    for side in SIDES:
        one = played(side)
        sides[side] = {
            "certificate": [float(f"{one.certificates[n - 1]:.4g}") for n in rounds],
            "payoff": [float(f"{one.payoffs[n - 1]:.4g}") for n in rounds],
            "average": [_frame(game, one.policies[n - 1], one.fs[n - 1]) for n in rounds],
            "move": [_frame(game, one.played_policies[n - 1], one.played_fs[n - 1]) for n in rounds],
        }
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "cells": CELLS,
        "moves": MOVES,
        "start": START,
        "goal": GOAL,
        "available": np.asarray(game.mdp.available).astype(int).tolist(),
        "rounds": rounds.tolist(),
        "expert": _frame(game, game.expert, np.zeros(game.mdp.shape)),
        "sides": sides,
    }


def _frame(game: Game, policy: np.ndarray, f: np.ndarray) -> dict[str, Any]:
    """How often π is in each state and its shares of actions there, over all steps, and f, which is stationary."""
    visited = occupancy(game.mdp, policy).sum(0)
    states = visited.sum(-1)
    shares = visited / np.maximum(states, 1e-12)[:, None]
    return {"visits": np.round(states, 2).tolist(), "actions": _whole(100 * shares), "f": _whole(1000 * f[0])}


def _whole(table: np.ndarray) -> list[list[int]]:
    return np.rint(table).astype(int).tolist()
