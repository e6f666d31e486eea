"""Gymnasium environments that misbehave at a chosen step, for tests. Workers can import them."""

import os
import re
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

import understudy as us

HORIZON = 12


class SlowToMake(CartPoleEnv):
    """A CartPole whose constructor takes a second."""

    def __init__(self):
        super().__init__()
        time.sleep(1.0)


class Misbehaving(CartPoleEnv):
    """A CartPole that does something wrong at its `at`-th step, or in its reset if `at` is 0.

    With `once`, the path of a file, it does so only as long as there is no file, and makes the file first.
    """

    def __init__(self, fault, at=5, once=None):
        super().__init__()
        self.fault, self.at, self.once, self.count = fault, at, once, 0

    def reset(self, *, seed=None, options=None):
        self.count = 0
        obs, info = super().reset(seed=seed)
        return (obs, info) if self.at else self.wrong((obs, info))

    def step(self, action):
        self.count += 1
        obs, reward, _, _, info = super().step(action)
        right = (obs, reward, False, False, info)
        return self.wrong(right) if self.count == self.at else right

    def wrong(self, right):
        if self.once is not None:
            try:
                Path(self.once).open("x").close()
            except FileExistsError:
                return right
        return FAULTS[self.fault](right)


def fail(error):
    raise error


def spin():
    """Hold Python's lock: matching takes longer than the universe lasts."""
    re.match(r"(a*)*b", "a" * 200)


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


class Odd:
    def __array__(self, *arguments, **options):
        raise RuntimeError("no array")


def replaced(position, value):
    """A fault that returns something else in one of the five places."""
    return lambda right: (*right[:position], value, *right[position + 1 :])


FAULTS = {
    "hang": lambda right: time.sleep(600),
    "spin": lambda right: spin(),
    "exit": lambda right: os._exit(3),
    "abort": lambda right: os.abort(),
    "raise": lambda right: fail(ValueError("the pole is missing\nand more")),
    "quit": lambda right: sys.exit(4),
    "wordless": lambda right: fail(Wordless()),
    "interrupt": lambda right: fail(KeyboardInterrupt()),
    "fork": lambda right: (os.fork(), right)[1],
    "fork and exit": lambda right: os._exit(3) if os.fork() else time.sleep(20),
    "nan": replaced(0, np.full(4, np.nan)),
    "inf reward": replaced(1, np.inf),
    "huge reward": replaced(1, 1e300),
    "endless reward": replaced(1, 10**400),
    "masked": replaced(0, np.ma.masked_array(np.zeros(4), np.ones(4))),
    "odd object": replaced(0, Odd()),
    "nan reward": replaced(1, float("nan")),
    "four": lambda right: right[:4],
    "none": lambda right: None,
    "text": lambda right: "a text",
    "size": replaced(0, np.zeros(3, np.float32)),
    "complex": replaced(0, np.zeros(4, np.complex64)),
    "object": replaced(0, np.array([None] * 4)),
    "ragged": replaced(0, [[1, 2], [3]]),
    "none reward": replaced(1, None),
    "text reward": replaced(1, "1"),
    "two rewards": replaced(1, np.ones(2)),
    "none flag": replaced(2, None),
    "number flag": replaced(3, 2.5),
}


def misbehaving(fault, at=5, once=None, horizon=HORIZON):
    """Such an environment."""
    return us.make(partial(Misbehaving, fault, at, None if once is None else str(once)), horizon)
