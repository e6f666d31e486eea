"""Golden fingerprints: short seeded runs of every algorithm and RL player on the CPU.

    python tools/fingerprints.py            compare with tools/fingerprints.json, exactly
    python tools/fingerprints.py --write    replace it, after an intended change of behaviour
    python tools/fingerprints.py --only adril

A fingerprint is a digest of the final parameters and metrics. It does not depend on the names of fields or metrics, so
that a rename keeps it. Digests are exact on one kind of CPU; a sketch of each run (means of the same numbers) is stored
with them, which any machine reproduces up to rounding.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

import understudy as us
from understudy.core.types import Spec
from understudy.envs.base import Environment, Timestep
from understudy.policies import Categorical
from understudy.rl import PPO, SAC, SoftQ

STORED = Path(__file__).with_suffix(".json")
TINY = {"rounds": 3, "gradient_steps": 3, "batch_size": 8, "hidden": (8,)}
ASKING = {**TINY, "episodes_per_round": 2}
JUDGING = {**ASKING, "critic_steps": 3, "critic_hidden": (8,)}
PLAYED = {
    "rounds": 3,
    "round_steps": 16,
    "frequency": 8,
    "random_steps": 4,
    "batch_size": 8,
    "sac": SAC(hidden=(8,), gradient_steps=2),
    "soft_q": SoftQ(hidden=(8,), gradient_steps=2, temperature=1.0),
}
ON_POLICY = {
    "rounds": 3,
    "round_steps": 16,
    "frequency": 8,
    "envs": 2,
    "buffer_size": 8,
    "expert_batch_size": 8,
    "discriminator_hidden": (8,),
    "discriminator_steps": 1,
    "ppo": PPO(hidden=(8,), epochs=1, minibatch=8),
}
OFF_POLICY = PLAYED | {"discriminator_hidden": (8,), "discriminator_steps": 2, "expert_batch_size": 8}


class Walk(Environment):
    """A walk of five steps: the action selects a row of a table as the drift. Three actions, four observations."""

    drift: jax.Array
    name = "Walk"
    about = "a walk"

    @property
    def spec(self):
        return Spec((4,), us.Discrete(3), 5)

    def reset(self, key):
        state = jax.random.normal(key, (4,))
        return state, state

    def step(self, state, act, key):
        new = state + self.drift[act]
        return Timestep(new, new, -jnp.abs(new).sum(), jnp.abs(new).max() > 3)

    def expert(self):
        return Categorical.init(jax.random.key(3), 4, 3, (8,))


def continuous_demos() -> us.Demonstrations:
    rng = np.random.default_rng(0)
    lengths = np.array([30, 50, 20, 40])
    obs = rng.normal(size=(lengths.sum(), 3)).astype(np.float32)
    act = np.clip(obs @ np.array([[0.4], [-0.3], [0.2]], np.float32) + 0.1, -2, 2)
    return us.Demonstrations.from_arrays(obs, act, lengths, action_space=us.Continuous((-2.0,), (2.0,)))


def discrete_demos() -> us.Demonstrations:
    rng = np.random.default_rng(1)
    lengths = np.array([40, 60, 50, 30])
    obs = rng.normal(size=(lengths.sum(), 4)).astype(np.float32)
    act = (obs @ rng.normal(size=(4, 3))).argmax(1)
    return us.Demonstrations.from_arrays(obs, act, lengths, action_space=us.Discrete(3))


def cartpole_demos() -> us.Demonstrations:
    rng = np.random.default_rng(2)
    lengths = np.array([40, 60, 50, 30])
    obs = rng.normal(size=(lengths.sum(), 4)).astype(np.float32)
    return us.Demonstrations.from_arrays(obs, (obs[:, 2] > 0).astype(int), lengths, action_space=us.Discrete(2))


def lean(obs: np.ndarray) -> np.ndarray:
    return (obs[:, 2] > 0).astype(np.int64)


def moments(obs: Any, act: Any) -> Any:
    return jnp.concatenate([obs[:1] * act[:1], act])


def cases() -> dict[str, Any]:
    walk = Walk(0.3 * jax.random.normal(jax.random.key(0), (3, 4)))
    tasks = {
        "continuous": (continuous_demos(), {"env": "Pendulum", "expert": "scripted"}),
        "discrete": (discrete_demos(), {"env": walk, "expert": walk.expert()}),
        "gymnasium": (cartpole_demos(), {"env": "CartPole-v1", "expert": lean}),
    }

    def run(algorithm: Any, kind: str, **more: Any) -> Any:
        demos, given = tasks[kind]
        needs = algorithm.card.needs
        given = {k: v for k, v in given.items() if {"env": "environment", "expert": "expert"}[k] in needs}
        return lambda: us.imitate(algorithm, demos, **given, seeds=2, episodes=[2, 4], workers=0, **more)

    found: dict[str, Any] = {}
    both = ("continuous", "discrete")
    for kind in both:
        found[f"bc/{kind}"] = run(us.bc(**TINY, ensemble_size=2), kind)
        found[f"advil/{kind}"] = run(us.advil(**TINY), kind)
        found[f"valuedice/{kind}"] = run(us.valuedice(**TINY), kind)
        found[f"dagger/{kind}"] = run(us.dagger(**ASKING), kind)
        found[f"dagger-mixing/{kind}"] = run(us.dagger(**ASKING, mixing=0.5), kind)
        found[f"daequil/{kind}"] = run(us.daequil(**JUDGING), kind)
        found[f"aggrevate/{kind}"] = run(us.aggrevate(**JUDGING), kind)
        found[f"adril/{kind}"] = run(us.adril(**PLAYED), kind)
        found[f"adril-paper/{kind}"] = run(us.adril.preset("paper", **PLAYED), kind)
        found[f"sqil/{kind}"] = run(us.sqil(**PLAYED), kind)
        found[f"gail/{kind}"] = run(us.gail(**ON_POLICY), kind)
        found[f"gail-sac/{kind}"] = run(us.gail.preset("sac", **OFF_POLICY), kind)
    found["bc-likelihood/continuous"] = run(us.bc(**TINY, loss="likelihood", decay=True), "continuous")
    found["bc-policy_obs/continuous"] = run(us.bc(**TINY), "continuous", policy_obs=[0, 2])
    found["advil-released/continuous"] = run(us.advil.preset("released", **TINY), "continuous")
    found["daequil-linear/continuous"] = run(
        us.daequil.preset("linear", **{**JUDGING, "critic": "linear"}, moments=moments), "continuous"
    )
    found["daequil-moments/continuous"] = run(us.daequil(**JUDGING, moments=moments, anchor=0.5), "continuous")
    found["adril-gaussian/continuous"] = run(us.adril(**PLAYED, kernel="gaussian", points=16), "continuous")
    found["adril-balanced/continuous"] = run(us.adril.preset("paper-balanced", **PLAYED), "continuous")
    found["valuedice-first/continuous"] = run(us.valuedice(**TINY, starts="first"), "continuous")
    for name, algorithm in {
        "dagger": us.dagger(**ASKING),
        "dagger-mixing": us.dagger(**ASKING, mixing=0.5),
        "daequil": us.daequil(**JUDGING),
        "adril": us.adril(**PLAYED),
        "adril-staleness": us.adril(**PLAYED, staleness=1),
        "gail": us.gail(**ON_POLICY),
    }.items():
        found[f"{name}/gymnasium"] = run(algorithm, "gymnasium")
    small = {"steps": 48, "seeds": 2, "batch_size": 8, "round_steps": 16, "workers": 0}
    sac = SAC(hidden=(8,), gradient_steps=2)
    found["SAC/continuous"] = lambda: us.learn(sac, "Pendulum", frequency=8, random_steps=8, **small)
    found["SAC-sde/continuous"] = lambda: us.learn(
        SAC(hidden=(8,), gradient_steps=2, sde=True), "Pendulum", frequency=8, random_steps=8, **small
    )
    found["SoftQ/discrete"] = lambda: us.learn(
        SoftQ(hidden=(8,), gradient_steps=2), walk, frequency=8, random_steps=8, **small
    )
    found["SoftQ/gymnasium"] = lambda: us.learn(
        SoftQ(hidden=(8,), gradient_steps=2), "CartPole-v1", frequency=8, random_steps=8, **small
    )
    ppo = PPO(hidden=(8,), epochs=1, minibatch=8)
    found["PPO/continuous"] = lambda: us.learn(ppo, "Pendulum", envs=2, frequency=16, **small)
    found["PPO/discrete"] = lambda: us.learn(ppo, walk, envs=2, frequency=16, **small)
    return found


def fingerprint(result: Any) -> dict[str, Any]:
    """Digests of the policies' arrays and of the metrics, independent of their names, and their means."""
    leaves = [np.asarray(x) for actor in result.policies for x in jax.tree.leaves(actor.policy)]
    numbers = [np.asarray(x, np.float64) for x in result.metrics.values()]
    payoffs = [run.payoff for run in getattr(result, "runs", [])]

    def digest(arrays: list[np.ndarray]) -> str:
        each = sorted(hashlib.sha256(f"{a.dtype}{a.shape}".encode() + a.tobytes()).hexdigest() for a in arrays)
        return hashlib.sha256("".join(each).encode()).hexdigest()[:16]

    sizes = [float(np.abs(x).mean()) for x in leaves]
    return {
        "policies": digest(leaves),
        "metrics": digest(numbers),
        "payoffs": digest([np.array(payoffs)]),
        "sketch": [round(float(np.mean(sizes)), 6), round(float(np.nanmean([np.nanmean(x) for x in numbers])), 6)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the stored fingerprints")
    parser.add_argument("--only", default="", help="run only the cases whose name contains this")
    given = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    differ, began = [], time.perf_counter()
    for name, run in cases().items():
        if given.only not in name:
            continue
        found = fingerprint(run())
        if not given.write and found != stored.get(name):
            old = stored.get(name, {})
            parts = [part for part in found if found[part] != old.get(part)]
            differ.append(name)
            print(f"{name}: {', '.join(parts)} differ: {old.get('sketch')} before, {found['sketch']} now", flush=True)
        elif given.write:
            stored[name] = found
    if given.write:
        STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n")
    seconds = time.perf_counter() - began
    print(f"{len(differ)} differ ({seconds:.0f} s)" if not given.write else f"written ({seconds:.0f} s)")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
