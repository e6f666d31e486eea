"""Synthetic records of studies, for tests of the report."""

import hashlib
from typing import Any

import numpy as np

from understudy.studies.records import FORMAT, cell_key, record_checksum

CHEETAH = "HalfCheetahBulletEnv-v0"


def make_record(
    algorithm: str = "adril",
    seed: int = 0,
    *,
    env: str = CHEETAH,
    trajectories: int = 20,
    preset: str = "default",
    label: str | None = None,
    evaluations: int = 20,
    x_kind: str = "env_steps",
    eval_every: int = 25_000,
    best: float = 2150.0,
    start: float = -1300.0,
    expert: float | None = 2154.0,
    status: str = "finished",
    final: bool = True,
    settings: dict[str, Any] | None = None,
    episodes: int = 10,
) -> dict[str, Any]:
    """The record of a learner whose return goes from `start` to `best`, with noise."""
    text = f"{algorithm}{seed}{trajectories}{env}{preset}"
    random = np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16))
    spread = 0.05 * abs(best - start)
    protocol = {"steps": 500_000, "eval_every": eval_every, "eval_every_rounds": None, "eval_episodes": episodes}
    config = {
        "algorithm": {
            "name": algorithm,
            "preset": preset,
            "settings": settings or {},
            "hyperparameters": {"rounds": 100, "lr": 3e-4, **(settings or {})},
        },
        "task": {"env": env, "demonstrations": "5f2d" * 16, "trajectories": trajectories, "expert": None},
        "seed": seed,
        "protocol": {**protocol, "holdout": None},
    }

    def evaluation(kind: str, x: int, level: float) -> dict[str, Any]:
        returns = (level + spread * random.normal() + 0.5 * spread * random.normal(size=episodes)).round(3).tolist()
        return {"x_kind": kind, "x": x, "steps": x, "payoff": round(float(random.random()), 4), "returns": returns}

    rows = [
        evaluation(
            x_kind, (i + 1) * eval_every, best + (start - best) * float(np.exp(-4 * (i + 1) / max(evaluations, 1)))
        )
        for i in range(evaluations)
    ]
    if final:
        rows.append(evaluation("final", max(evaluations, 1) * eval_every, best))
    record = {
        "format": FORMAT,
        "key": cell_key(config),
        "config": config,
        "display": {"label": label or algorithm, "demos": "bundled", "expert_return": expert},
        "evaluations": rows,
        "status": status,
        "seconds": 712.3,
        "runs_in_program": 5,
        "env_steps": 500_480 if evaluations else None,
        "queries": None,
        "provenance": {
            "command": "understudy study run reward.toml",
            "versions": {"understudy": "0.1.0", "jax": "0.11.2"},
            "date": "2026-11-15T20:22:58+00:00",
            "device": "cpu",
        },
    }
    return {**record, "checksum": record_checksum(record)}


def curve_records() -> list[dict[str, Any]]:
    """Three algorithms with five seeds and twenty evaluations each, like the figure of reward moments."""
    learners = {"adril": (20, 2160.0, "AdRIL"), "sqil": (5, 900.0, "SQIL"), "gail": (5, -200.0, "GAIL")}
    return [
        make_record(name, seed, trajectories=count, best=best, label=label)
        for name, (count, best, label) in learners.items()
        for seed in range(5)
    ]


def offline_records() -> list[dict[str, Any]]:
    """Two offline algorithms with three numbers of trajectories. Only final policies are evaluated."""
    task = {"env": "AntBulletEnv-v0", "evaluations": 0, "start": 0.0}
    return [
        make_record(name, seed, trajectories=count, best=best - 1500 / count, **task)
        for name, best in (("bc", 2500.0), ("valuedice", 2300.0))
        for count in (5, 10, 25)
        for seed in range(3)
    ]
