"""Cells of studies that nobody ran, for tests of what is made of them."""

import hashlib
import json
from typing import Any

import numpy as np

CHEETAH = "HalfCheetahBulletEnv-v0"


def cell(
    algorithm: str = "adril",
    seed: int = 0,
    *,
    env: str = CHEETAH,
    trajectories: int = 20,
    preset: str = "default",
    label: str | None = None,
    evaluations: int = 20,
    kind: str = "env_steps",
    every: int = 25_000,
    best: float = 2150.0,
    start: float = -1300.0,
    expert: float | None = 2154.0,
    status: str = "finished",
    handed: bool = True,
    settings: dict[str, Any] | None = None,
    episodes: int = 10,
) -> dict[str, Any]:
    """A learner that gets from `start` to `best`, with noise of its own; the record as a store keeps it."""
    text = f"{algorithm}{seed}{trajectories}{env}{preset}"
    random = np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16))
    spread = 0.05 * abs(best - start)
    asked = {
        "algorithm": {
            "name": algorithm,
            "preset": preset,
            "settings": settings or {},
            "hyperparameters": {"rounds": 100, "lr": 3e-4, **(settings or {})},
        },
        "task": {"env": env, "demonstrations": "5f2d" * 16, "trajectories": trajectories, "expert": None},
        "seed": seed,
        "protocol": {"steps": 500_000, "every": every, "rounds_every": None, "episodes": episodes, "holdout": None},
    }

    def row(x_kind: str, x: int, level: float) -> dict[str, Any]:
        returns = (level + spread * random.normal() + 0.5 * spread * random.normal(size=episodes)).round(3).tolist()
        return {"x_kind": x_kind, "x": x, "steps": x, "payoff": round(float(random.random()), 4), "returns": returns}

    rows = [
        row(kind, (i + 1) * every, best + (start - best) * float(np.exp(-4 * (i + 1) / max(evaluations, 1))))
        for i in range(evaluations)
    ]
    if handed:
        rows.append(row("final", max(evaluations, 1) * every, best))
    body = {
        "format": 1,
        "key": _digest({"format": 1, "asked": asked})[:16],
        "asked": asked,
        "shown": {"label": label or algorithm, "demos": "bundled", "expert_return": expert},
        "rows": rows,
        "status": status,
        "seconds": 712.3,
        "together": 5,
        "env_steps": 500_480 if evaluations else None,
        "queries": None,
        "made": {
            "command": "understudy study run reward.toml",
            "versions": {"understudy": "0.1.0", "jax": "0.11.2"},
            "date": "2026-11-15T20:22:58+00:00",
            "device": "cpu",
        },
    }
    return {**body, "checksum": _digest(body)}


def figure() -> list[dict[str, Any]]:
    """Three algorithms, five seeds, twenty evaluations: the paper's online figure in size."""
    reach = {"adril": (20, 2160.0), "sqil": (5, 900.0), "gail": (5, -200.0)}
    return [
        cell(name, seed, trajectories=count, best=best, label={"adril": "AdRIL", "sqil": "SQIL", "gail": "GAIL"}[name])
        for name, (count, best) in reach.items()
        for seed in range(5)
    ]


def counts() -> list[dict[str, Any]]:
    """Two offline algorithms over three numbers of trajectories, played only at the end."""
    return [
        cell(name, seed, env="AntBulletEnv-v0", trajectories=count, evaluations=0, best=best - 1500 / count, start=0.0)
        for name, best in (("bc", 2500.0), ("valuedice", 2300.0))
        for count in (5, 10, 25)
        for seed in range(3)
    ]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
