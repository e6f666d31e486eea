"""Gaps, payoffs and bounds on the four example MDPs, over a grid of T, ε and H, by `tabular.bounds.measure`.

    moments    payoff                                    bound
    reward     ε = sup U1 over F_r/2                     2 ε T
    off-Q      ε = sup U2 over the box of F_Q/2T         2 ε T²
    on-Q       ε = (1/T) Σ_t E_{s ~ π} e_t(s)            ε H T, with H over {r, −r}

There are two views. In the first the payoff is ε, so each game has a learner of its own:

    reward     errs in the first step with probability ε, and stays away from the expert's states
    off-Q      errs in the first step with probability ε T, and stays away
    on-Q       the same, or in LOOP, where the expert would return: errs in every state with probability ε

In the second, one learner errs in every state with probability ε, and each game has the payoff that it has.
LOOP has a longer way back for larger H. The other tasks have one H for each T.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from understudy.game import Moments
from understudy.tabular import bounds, examples, stack
from understudy.tabular.examples import Example, erring
from understudy.tabular.mdp import FiniteMDP

EPSILONS = tuple(2.0**-power for power in range(12, 0, -1))
HORIZONS = (4, 8, 16, 32, 64, 128)
TREE_HORIZONS = (2, 3, 4, 6, 8, 12)
"""A tree of 12 steps has 4,095 nodes."""
WAYS_BACK = (1, 2, 4, 8, 16, 32, 64)
KINDS: tuple[Moments, ...] = ("reward", "off-Q", "on-Q")
VIEWS = ("payoff", "learner")
"""ε is the payoff, or the error probability of one learner."""
DIGITS = 10
"""Significant digits of a number in the page."""


class Task(NamedTuple):
    """A task of the page."""

    name: str
    make: Callable[[int, int], Example]
    """(T, way back) ↦ the MDP."""
    horizons: tuple[int, ...]
    ways_back: tuple[int, ...]
    about: str


LOOP, CLIFF, UNICYCLE, TREE = TASKS = (
    Task(
        "LOOP",
        examples.loop,
        HORIZONS,
        WAYS_BACK,
        "The reward is 1 in s₁. A wrong action leads to a detour, from which the expert would return after H steps: 1 "
        "in the paper, more with the slider. On-Q moments also match the learner there, so an error costs H steps. "
        "The other moments allow learners that never return.",
    ),
    Task(
        "CLIFF",
        lambda horizon, _: examples.cliff(horizon),
        HORIZONS,
        (1,),
        "A wrong action leads over a cliff: −1 in each step from then on, and not even the expert could return. So H "
        "is T, and on-Q moments are no better than off-Q moments: both gaps grow with T².",
    ),
    Task(
        "UNICYCLE",
        lambda horizon, _: examples.unicycle(horizon),
        HORIZONS,
        (1,),
        "A wrong action is a fall, and a fall costs 1 in each of the remaining steps. H is T − 1, so the on-Q gap "
        "grows with T² too.",
    ),
    Task(
        "TREE",
        lambda horizon, _: examples.tree(horizon, 2),
        TREE_HORIZONS,
        (1,),
        "Two actions, and each sequence of actions has a leaf of its own. The reward is 1 for the expert's actions on "
        "its path, and no branch leads back to it. So H is T.",
    ),
)


GROUPS = ((LOOP,), (CLIFF, UNICYCLE), (TREE,))
"""Tasks that are measured together. Those of a group have the same horizons."""


def away(example: Example, p: float) -> np.ndarray:
    """A learner that errs in the first step with probability p and never returns.

    Only LOOP has a way back to the expert's states. There it takes the wrong action in the whole detour.
    """
    learner = np.array(example.expert)
    learner[0] = erring(example, p, where=0)[0]
    if example.name == "LOOP":
        learner[:, 2:] = [0.0, 1.0]
    return learner


def learners(example: Example, epsilon: float) -> list[np.ndarray | None]:
    """The learners of the first view with payoff ε, by kind, then that of the second. None: there is none."""
    everywhere = erring(example, epsilon)
    product = epsilon * example.mdp.horizon
    off_q = away(example, product) if product <= 1 else None
    return [away(example, epsilon), off_q, everywhere if example.name == "LOOP" else off_q, everywhere]


class Cell(NamedTuple):
    """A learner, seen by one game."""

    payoff: float
    gap: float
    bound: float


Views = dict[str, list[list[list[Cell | None]]]]
"""View ↦ cells [way back][ε][kind]. None: no such learner."""


def cells_of(tasks: Sequence[Task], horizon: int) -> list[tuple[Views, list[float]]]:
    """For each task its cells of one T, and H by way back. One call of `measure`, whose compilation takes the time."""
    # A way back that is longer than the episode has no end either.
    made = [[task.make(horizon, min(way_back, horizon)) for way_back in task.ways_back] for task in tasks]
    states = max(len(example.states) for examples_ in made for example in examples_)
    made = [[_padded(example, states) for example in examples_] for examples_ in made]
    rows = [[(example, learners(example, epsilon)) for epsilon in EPSILONS] for own in made for example in own]
    pairs = {
        id(policy): (example, policy) for one in rows for example, row in one for policy in row if policy is not None
    }
    cells = dict(zip(pairs, _measured(list(pairs.values())), strict=True))
    seen = iter([[[cells.get(id(policy)) for policy in row] for _, row in one] for one in rows])
    return [_views([next(seen) for _ in own], horizon) for own in made]


def _measured(pairs: Sequence[tuple[Example, np.ndarray]]) -> list[list[Cell]]:
    """The cells of each learner, by kind."""
    owners = [example for example, _ in pairs]
    reports = bounds.measure(
        stack([one.mdp for one in owners]),
        np.stack([one.expert for one in owners]),
        np.stack([policy for _, policy in pairs]),
        np.stack([one.reward for one in owners]),
    )
    by_kind = {one.moments: one for one in reports}  # of the on-Q ones the last, whose class is {r, −r}
    numbers = np.array([[by_kind[kind].payoff, by_kind[kind].gap, by_kind[kind].bound] for kind in KINDS])
    return [[Cell(*map(float, kind)) for kind in one] for one in numbers.transpose(2, 0, 1)]


def _views(by_way: Sequence[Sequence[Sequence[list[Cell] | None]]], horizon: int) -> tuple[Views, list[float]]:
    """Both views of a task, from the cells of its learners [way back][ε], and H by way back."""
    views: Views = {view: [] for view in VIEWS}
    constants = []
    for rows in by_way:
        views["payoff"].append([[one and one[kind] for kind, one in enumerate(row[:3])] for row in rows])
        views["learner"].append([list(row[3] or ()) for row in rows])
        on_q = views["learner"][-1][0][2]
        assert on_q is not None
        constants.append(on_q.bound / (on_q.payoff * horizon))  # the bound is ε H T
    return views, constants


def _padded(example: Example, states: int) -> Example:
    """The task with more states, which nobody reaches and which lead to state 1: MDPs of one shape are a batch."""
    missing = states - len(example.states)
    if missing == 0:
        return example
    index = np.concatenate([examples.successor_table(example), np.ones((missing, example.mdp.actions), int)])
    available = np.pad(example.mdp.available, ((0, missing), (0, 0)), constant_values=True)
    mdp = FiniteMDP(index, np.eye(1, states)[0], example.mdp.horizon, available)
    rows = ((0, 0), (0, missing), (0, 0))
    expert = np.pad(example.expert, rows)
    expert[:, len(example.states) :, 0] = 1
    return example._replace(mdp=mdp, expert=expert, reward=np.pad(example.reward, rows))


def tables() -> dict[str, Any]:
    """Everything that the page needs: by task and view the cells [way back][T][ε][kind] of (payoff, gap, bound)."""
    tasks = []
    for group in GROUPS:
        by_horizon = [cells_of(group, horizon) for horizon in group[0].horizons]
        tasks += [_task(task, [one[i] for one in by_horizon]) for i, task in enumerate(group)]
    return {"epsilons": EPSILONS, "kinds": KINDS, "tasks": tasks}


def _task(task: Task, by_horizon: Sequence[tuple[Views, list[float]]]) -> dict[str, Any]:
    ways = range(len(task.ways_back))
    return {
        "name": task.name,
        "about": task.about,
        "horizons": task.horizons,
        "ways_back": task.ways_back,
        "recoverability": [[_digits(constants[way]) for _, constants in by_horizon] for way in ways],
        "cells": {view: [[_rounded(views[view][way]) for views, _ in by_horizon] for way in ways] for view in VIEWS},
    }


def _rounded(cells: Sequence[Sequence[Cell | None]]) -> list[list[list[float] | None]]:
    return [[one and [_digits(x) for x in one] for one in row] for row in cells]


def _digits(x: float) -> float:
    return float(f"{x:.{DIGITS}g}")
