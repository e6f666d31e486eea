"""What is fuzzed: valid files of each kind, and what must hold for whatever is read from a damaged one.

`attack(target, folder, seed)` damages a copy of a valid file or directory and reads it. Used by the fuzz tests and by
`tools/fuzz.py`.
"""

import functools
import itertools
import shutil
import tempfile
import unittest.mock
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import understudy as us
from support.mutations import loaded, mutate_directory, mutate_file
from support.sb3_mutations import FIRED
from support.training import EveryRound, assert_same, ctrl_c
from understudy.core.types import MOST_ACTIONS, MOST_STEPS
from understudy.data.details import Details
from understudy.policies import (
    Actor,
    Categorical,
    Deterministic,
    Ensemble,
    Gaussian,
    Mixture,
    Normalized,
    Tabular,
    TimeIndexed,
)
from understudy.policies.gaussian import StateDependent
from understudy.policies.networks import MLP, Activation
from understudy.policies.normalization import Normalization


@dataclass(frozen=True)
class Target:
    """A kind of file or directory."""

    make: Callable[[Path], list[Path]]
    """Writes valid ones into a folder."""
    load: Callable[[Path], Any]
    check: Callable[[Any], None]
    """Asserts the invariants of a loaded value."""
    checksums: bool = True
    """Whether damage by accident is always noticed: what is read all the same is unchanged."""


def attack(target: Target, valid: list[Path], folder: Path, seed: int) -> tuple[str, bool]:
    """Damage a copy of a valid file or directory and read it. Returns the damage, and whether it was read."""
    source = valid[seed % len(valid)]
    path = folder / source.name
    if source.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path)
    else:
        shutil.copy(source, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of doubled names as they are written
        damage = mutate_directory(path, seed) if path.is_dir() else mutate_file(path, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning would be printed with the file's own text
        value = loaded(lambda: target.load(path), path.name)
        if value is not None:
            target.check(value)
            if target.checksums and damage.split(",")[0].split()[0] in UNSEEN:
                assert fingerprint(value) == fingerprint(target.load(source)), damage
    return damage, value is not None


UNSEEN = ("flip_bits", "truncate", "cut_start", "cut_middle", "overwrite_block", "insert_block", "swap_blocks")
"""Damage by accident. If a file with checksums is read all the same, its contents are the same."""


def fingerprint(value: Any) -> list[Any]:
    """The contents of a loaded value, which can be compared."""
    if isinstance(value, us.Result):
        fields: Any = {"algorithm": value.config["algorithm"], "runs": value.runs, "metrics": value.metrics}
    elif isinstance(value, us.Demonstrations):
        fields = {**vars(value), "details": vars(value.details)}
    else:
        fields = {"spec": value.spec, "about": value.about}
    policies = getattr(value, "policies", [value])
    leaves = jax.tree.leaves_with_path((dict(fields), [getattr(actor, "policy", None) for actor in policies]))
    return [(jax.tree_util.keystr(path), np.asarray(leaf).tolist()) for path, leaf in leaves]


def make_demonstrations(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    lengths = np.array([4, 3, 5])
    shared: dict[str, Any] = {"lengths": lengths, "rewards": rng.normal(size=12), "horizon": 8, "env": "Somewhere"}
    box = us.Continuous((-2.0, -3.0), (2.0, 1.0))
    shared["next_observations"] = rng.normal(size=(12, 3))
    ended = np.isin(np.arange(12), (3, 11))
    continuous = us.Demonstrations.from_arrays(
        rng.normal(size=(12, 3)), rng.uniform(-1, 1, (12, 2)), action_space=box, terminals=ended, **shared
    )
    del shared["next_observations"]
    details = Details((True, False, True), ("a", "b", "a"), np.arange(12) % 2, ("push",), "N", 30.0, "somewhere")
    discrete = us.Demonstrations.from_arrays(
        rng.normal(size=(12, 3)),
        np.arange(12) % 3,
        last_observations=rng.normal(size=(3, 3)),
        obs_parts=(("joints", 2), ("goal", 1)),
        details=details,
        **shared,
    )
    plain = us.Demonstrations.from_arrays(
        rng.normal(size=(12, 3)), np.arange(12) % 3, lengths, recorded_return=(1.0, 0.5, 3)
    )
    paths = [folder / f"{name}.npz" for name in ("continuous", "discrete", "plain")]
    for demonstrations, path in zip((continuous, discrete, plain), paths, strict=True):
        demonstrations.save(path)
    return paths


def check_demonstrations(d: us.Demonstrations) -> None:
    steps = int(d.lengths.sum())
    assert d.observations.shape[0] == steps
    assert not d.has_actions or d.actions.shape[0] == steps
    assert (d.lengths >= 1).all()
    assert d.lengths.max() <= d.horizon <= MOST_STEPS
    assert d.observations.dtype == np.float32
    for array in (d.observations, d.recorded_actions, d.next_observations, d.rewards):
        assert array is None or np.isfinite(array).all()
    assert not d.has_actions or not d.action_space.outside(d.actions).any()
    assert d.spec.action_size <= MOST_ACTIONS
    assert d.env is None or d.env.isprintable()
    assert d.ends in ("time_limit", "terminal")
    assert sum(size for _, size in d.obs_parts) in (0, d.observations.shape[1])
    assert all(name.isprintable() for name, _ in d.obs_parts)
    assert all(task.isprintable() for task in d.details.tasks or ())
    assert d.details.successes is None or d.details.successes.shape == (d.episodes,)
    assert d.details.interventions is None or d.details.interventions.shape == (steps,)
    assert d.expert_return is None or np.isfinite(d.expert_return.mean)
    assert d.transitions().obs.shape == d.observations.shape
    assert d.first(1).episodes == 1


def make_policies(folder: Path) -> list[Path]:
    """One of each class, alone or combined as the algorithms do."""
    rng, box, three = np.random.default_rng(0), us.Continuous((-2.0, -3.0), (2.0, 1.0)), us.Discrete(3)

    def net(inputs: int, outputs: int, *stack: int, activation: Activation = "relu", indices: Any = None) -> MLP:
        shapes = ((inputs, 5), (5, outputs))
        weights = tuple(rng.normal(size=(*stack, *shape)).astype(np.float32) for shape in shapes)
        return MLP(weights, tuple(w[..., 0, :] for w in weights), activation, indices)

    plain = Normalization(np.zeros(4, np.float32), np.ones(4, np.float32), None, None)
    scaled = Normalization(np.zeros(4, np.float32), np.ones(4, np.float32), *np.array([[0, -1], [2, 2]], np.float32))
    network = Deterministic(net(2, 2, indices=(0, 3)), squash=True, clip=2.0)
    noisy = StateDependent(net(4, 2, activation="tanh"), np.full((5, 2), -1, np.float32))
    several, choices = Deterministic(net(4, 2, 3)), Categorical(net(4, 3, 3))
    table = np.full((2, 6, 3), 1 / 3, np.float32)
    actors = {
        "network": (Normalized(network, scaled), (4,), box),
        "gaussian": (Normalized(Gaussian(net(4, 4)), scaled), (4,), box),
        "noisy": (noisy, (4,), box),
        "ensemble": (Normalized(Ensemble(several), scaled), (4,), box),
        "choices": (Normalized(Ensemble(choices), plain), (4,), three),
        "timed": (Normalized(TimeIndexed(several), scaled), (4,), box),
        "table": (Tabular(table[0].astype(np.float64)), (), three),
        "tables": (TimeIndexed(Tabular(table)), (), three),
        "mixture": (Normalized(Mixture(net(4, 15), 3), scaled), (4,), box),
    }
    for name, (policy, shape, space) in actors.items():
        about = {"algorithm": "bc", "seed": 0, "episodes": 3, "env": "Somewhere"}
        Actor(policy, us.Spec(shape, space, 9), about).save(folder / f"{name}.npz")
    return [folder / f"{name}.npz" for name in actors]


def check_actor(actor: Actor) -> None:
    random, shape = np.random.default_rng(0), actor.spec.obs_shape
    obs = random.normal(size=(3, *shape)).astype(np.float32) if shape else np.zeros(3, int)
    state = None
    for deterministic in (True, False):
        with np.errstate(all="ignore"):
            actions, state = actor.predict(obs, state, deterministic=deterministic, random=random)
        assert actions.shape == (3, *actor.spec.action.shape)
        assert np.isfinite(actions).all()
        assert isinstance(actor.spec.action, us.Continuous) or not actor.spec.action.outside(actions).any()
    assert repr(actor).isprintable()


WEIGHTS_FOR = {"Pendulum": us.Pendulum(), "CartPole-v1": None}


def make_weights(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)

    def layers(*sizes: int) -> dict[str, np.ndarray]:
        pairs = [(rng.normal(size=(i, o)).astype(np.float32), rng.normal(size=o)) for i, o in itertools.pairwise(sizes)]
        return {f"{kind}{i}": array for i, pair in enumerate(pairs) for kind, array in zip("wb", pair, strict=True)}

    np.savez_compressed(folder / "Pendulum.npz", activation="tanh", squash=True, clip=2.0, **layers(3, 5, 1))
    np.savez_compressed(folder / "CartPole-v1.npz", activation="relu", **layers(4, 5, 5, 2))
    return [folder / "Pendulum.npz", folder / "CartPole-v1.npz"]


def load_weights(path: Path) -> Actor:
    WEIGHTS_FOR[path.stem] = WEIGHTS_FOR[path.stem] or us.make(path.stem)
    return us.policy_from_weights(path, WEIGHTS_FOR[path.stem])


def make_models(folder: Path) -> list[Path]:
    """Models that Stable-Baselines3 saved (tools/sb3_fixtures.py)."""
    models = Path(__file__).parents[1] / "data_files" / "sb3"
    names = ("sac-sde-tanh", "td3", "ppo", "ppo-discrete", "dqn")
    return [Path(shutil.copy(models / f"{name}.zip", folder)) for name in names]


def load_model(path: Path) -> Actor:
    task = "CartPole-v1" if path.stem in ("ppo-discrete", "dqn") else "Pendulum-v1"
    WEIGHTS_FOR[task] = WEIGHTS_FOR.get(task) or us.make(task)
    try:
        return us.policy_from_sb3(path, WEIGHTS_FOR[task])
    finally:
        assert not FIRED


def make_runs(folder: Path) -> list[Path]:
    learner = us.bc(rounds=2, gradient_steps=2, batch_size=8, hidden=(4,))
    us.imitate(learner, us.load("Pendulum", episodes=2), episodes=[1, 2], seeds=2).save(folder / "run")
    return [folder / "run"]


def check_run(result: us.Result) -> None:
    assert len(result.runs) == len(result.policies) >= 1
    for run, actor in zip(result.runs, result.policies, strict=True):
        assert (actor.about["seed"], actor.about["episodes"]) == (run.seed, run.episodes)
        assert run.status.isprintable()
        if not run.status.startswith("diverged"):
            check_actor(actor)
    assert all(values.shape[0] == len(result.runs) for values in result.metrics.values())
    assert result.policy is result.policies[result.selected]
    assert result.expert is None or np.isfinite(result.expert.mean)
    assert repr(result).isprintable()
    assert str(result.config["algorithm"]["card"]["title"]).isprintable()
    assert isinstance(result.config["seconds"], int | float)


def make_checkpoints(folder: Path) -> list[Path]:
    """The checkpoint of a training call that was interrupted after round 3 of 6."""
    path = folder / "checkpoint.npz"
    with unittest.mock.patch("understudy.train.imitate.Checkpoint", EveryRound):
        _train(path, ctrl_c(3))
    return [path]


def _train(checkpoint: Path | None, progress: Any = None) -> us.Result:
    learner = us.bc(rounds=6, gradient_steps=2, batch_size=8, hidden=(8,))
    call = {"checkpoint": checkpoint, "progress": progress, "holdout": 0.0}
    return us.imitate(learner, "Pendulum", seeds=2, episodes=[2, 3], **call)


def resume(path: Path) -> us.Result:
    """Resume from a copy of a checkpoint: the original stays."""
    with tempfile.TemporaryDirectory() as folder:
        return _train(Path(shutil.copy(path, folder)))


@functools.cache
def _uninterrupted() -> us.Result:
    return _train(None)


def check_resumed(result: us.Result) -> None:
    assert_same(result, _uninterrupted())


TARGETS = {
    "demonstrations": Target(make_demonstrations, us.load, check_demonstrations),
    "policies": Target(make_policies, us.load_policy, check_actor),
    "weights": Target(make_weights, load_weights, check_actor),
    "models": Target(make_models, load_model, check_actor),
    "runs": Target(make_runs, us.load_run, check_run),
    "checkpoints": Target(make_checkpoints, resume, check_resumed),
}
"""The kinds of files, by name. `tools/fuzz.py` takes these names."""
