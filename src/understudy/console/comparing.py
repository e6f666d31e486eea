"""Comparisons: two clips of different policies from the same start, and which one the person prefers."""

from typing import Any

import numpy as np

from understudy.console.clips import Clips
from understudy.console.protocol import Refused
from understudy.console.store import Store
from understudy.core.statistics import proportion

SIDES = ("left", "right")
POINTS = {"left": 1.0, "same": 0.5, "right": 0.0}
"""What a choice is worth to the policy on the left."""


class Comparisons:
    """The pairs so far. Which policy is on the left is random, and hidden until the person has chosen."""

    def __init__(self, store: Store, seed: int, clips: Clips):
        self._store, self._seed, self._clips = store, seed, clips
        self._pairs: list[dict[str, Any]] = []
        for line in store.preferences.read():
            self._apply(line)

    def next_pair(self, policies: list[int]) -> None:
        """Make a pair of the two policies that were compared least, unless one waits for a choice."""
        if self._pairs and self._pairs[-1]["choice"] is None:
            return
        if len(policies) < 2:
            raise Refused("not-now", f"a comparison needs two policies, and there are {len(policies)}: train first")
        number = len(self._pairs) + 1
        random = np.random.default_rng([self._seed, number, 1])
        counts = {policy: sum(policy in (pair["left"], pair["right"]) for pair in self._pairs) for policy in policies}
        # The least compared first, then the newest; the order of the sides is drawn.
        chosen = sorted(policies, key=lambda policy: (counts[policy], -policy))[:2]
        left, right = (int(x) for x in random.permutation(chosen))
        line = {"pair": number, "left": left, "right": right, "seed": int(random.integers(2**31))}
        self._store.preferences.append(line)
        self._apply(line)

    def prefer(self, number: int, choice: str) -> None:
        """Store the choice of a pair. It may be changed."""
        if not 1 <= number <= len(self._pairs):
            raise Refused("wrong-field", f"there is no pair {number}")
        line = {"pair": number, "choice": choice}
        self._store.preferences.append(line)
        self._apply(line)

    def message(self) -> dict[str, Any] | None:
        if not self._pairs:
            return None
        pair = self._pairs[-1]
        sides = {side: {"clip": self._clips.of_pair(pair["pair"], side)} for side in SIDES}
        chosen = pair["choice"]
        shown = None if chosen is None else [pair["left"], pair["right"]]
        return {"type": "pair", "pair": pair["pair"], **sides, "chosen": chosen, "policies": shown}

    def state(self) -> dict[str, Any]:
        """The win rate of each policy, with a 95% interval. A tie is half a win."""
        answered = [pair for pair in self._pairs if pair["choice"] is not None]
        rates = []
        for policy in sorted({pair[side] for pair in answered for side in SIDES}):
            points = [POINTS[pair["choice"]] for pair in answered if pair["left"] == policy]
            points += [1 - POINTS[pair["choice"]] for pair in answered if pair["right"] == policy]
            rate = proportion(sum(points), len(points))
            counts = {"wins": points.count(1.0), "losses": points.count(0.0), "ties": points.count(0.5)}
            rates.append({"policy": policy, **counts, "rate": rate.mean, "low": rate.low, "high": rate.high})
        return {"answered": len(answered), "left": len(self._pairs) - len(answered), "rates": rates}

    def _apply(self, line: dict[str, Any]) -> None:
        if "choice" in line:
            self._pairs[line["pair"] - 1]["choice"] = line["choice"]
            return
        self._pairs.append({**line, "choice": None})
        for side in SIDES:
            self._clips.pairs[self._clips.of_pair(line["pair"], side)] = (line[side], line["seed"])
