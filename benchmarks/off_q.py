"""Time of a training step of AdVIL and of ValueDICE: understudy and the same step in eager PyTorch.

    python benchmarks/off_q.py

It runs on JAX's default device, a CPU or a CUDA GPU; PyTorch must have the same. First it checks that the two take the
same step from the same weights. Then they alternate, so that other load on the machine affects both. The fastest
repetition of each counts. On a busy CPU the threads of PyTorch wait for each other and the ratio is meaningless, so
nothing is written. The ratios are printed and written to docs/results/off-q-speed.csv; rows of other machines stay.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

import understudy as us
from understudy.algorithms.off_q.advil import AdVIL, AdVILState, ensemble_pair
from understudy.algorithms.off_q.valuedice import UsableRows, ValueDICE, ValueDICEState
from understudy.core.types import Dataset, RoundData, Samples
from understudy.game import payoffs
from understudy.game.critics import gradient_penalty, interpolate
from understudy.game.sampling import draw_from_both
from understudy.policies.gaussian import Gaussian
from understudy.policies.networks import MLP
from understudy.train import loop as run
from understudy.train.results import hyperparameters
from understudy.train.tables import provenance, write_csv

HERE = Path(__file__).parent
OBS, ACT = 26, 6  # HalfCheetah's
MANY = 25
# Relative to the largest number compared. The policy's gradient follows the critic's first step, and the length of
# Adam's first step does not depend on the gradient's size, so tiny gradients, which are rounding errors, count fully.
TOLERANCES = {"payoff": 1e-4, "penalty": 1e-4, "critic_moment": 1e-4, "policy_moment": 1e-3}
QUIET = 0.97  # The minimum share of CPU time for PyTorch's threads; 0.995 on an idle machine.
HEADER = ["what", "ms_a_step", "ratio", "command", "versions", "machine", "date"]
# (rounds, steps per round) of a repetition, two seconds or more, by number of runs.
LENGTHS = {
    ("advil", "cpu"): {1: (10, 10), MANY: (8, 1)},
    ("valuedice", "cpu"): {1: (10, 30), MANY: (8, 3)},
    ("advil", "gpu"): {1: (10, 1000), MANY: (10, 200)},
    ("valuedice", "gpu"): {1: (10, 1000), MANY: (10, 200)},
}


@dataclass(frozen=True)
class Options:
    peer: str | None = None
    """A Python with PyTorch. Default: the one of `make bench`, or this one."""
    repeats: int = 3
    """Repetitions of each."""
    out: str = str(HERE.parent / "docs/results/off-q-speed.csv")
    """CSV file of the times. Rows of other machines stay."""


def algorithm(name: str, rounds: int = 1, steps: int = 1) -> AdVIL | ValueDICE:
    if name == "advil":
        return us.advil.preset("paper", rounds=rounds, gradient_steps=steps)
    return us.valuedice(rounds=rounds, gradient_steps=steps)


def random_demonstrations() -> us.Demonstrations:
    """Short episodes. Every second one ends in a terminal state, so a minibatch of ValueDICE has all kinds of steps."""
    random = np.random.default_rng(0)
    return us.Demonstrations.from_arrays(
        random.normal(1.0, 2.0, (5000, OBS)),
        random.uniform(-2, 2, (5000, ACT)),
        [20] * 250,
        terminals=np.arange(5000) % 40 == 39,
        action_space=us.Continuous((-2.0,) * ACT, (2.0,) * ACT),
    )


def ours(name: str, runs: int, demonstrations: us.Demonstrations) -> float:
    """Milliseconds of a step of `runs` runs in one program. The first call includes compilation."""
    learner = algorithm(name, *LENGTHS[name, jax.default_backend()][runs])
    data, _ = demonstrations.split([demonstrations.episodes] * runs, 0.0)
    keys = jax.random.split(jax.random.key(0), runs)
    began = time.perf_counter()
    training = run.train(learner, demonstrations.spec, data, keys)
    spent = time.perf_counter() - began
    # A run that stops early takes no time.
    assert set(training.statuses) == {"finished"}, training.statuses
    return spent / (learner.rounds * learner.gradient_steps) * 1e3


class Peer:
    """PyTorch in another process; the two exchange files in a folder."""

    def __init__(self, python: str, folder: Path):
        self.python, self.folder = python, folder
        self.device = "cuda" if jax.default_backend() == "gpu" else "cpu"

    def run(self, task: str) -> dict[str, Any]:
        script = str(HERE / "peers/torch_off_q.py")
        command = [self.python, script, str(self.folder), self.device, str(cores()), task]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            sys.exit(f"the PyTorch side failed: {reason} (choose its Python with --peer)")
        return dict(json.loads(answer.stdout.splitlines()[-1]))


def check(peer: Peer, demonstrations: us.Demonstrations) -> None:
    """Check that both sides take the same step from the same weights and random numbers; exit if they do not.

    It compares the payoff and AdVIL's gradient penalty on the minibatch, and both players' gradients, which are ten
    times Adam's first moments after one step.
    """
    data, _ = demonstrations.split([demonstrations.episodes], 0.0)
    data = data.of(0)
    space = demonstrations.action_space
    assert isinstance(space, us.Continuous)
    expected = {}
    for name in ("advil", "valuedice"):
        learner = algorithm(name)
        state: Any = learner.init(jax.random.key(1), demonstrations.spec, data)
        # By default PyTorch computes in full precision, and JAX on a GPU does not.
        with jax.default_matmul_precision("highest"):
            key = jax.random.key(2)
            describe: Any = advil_step if isinstance(learner, AdVIL) else valuedice_step
            given, expected[name] = describe(learner, state, data, key)
            after, _ = jax.jit(learner.update)(state, RoundData(data), key)
        expected[name] |= {"critic_moment": moment(after.critic_memory), "policy_moment": moment(after.policy_memory)}
        settings = hyperparameters(learner)
        if isinstance(state.policy, Gaussian):
            settings |= {"log_std_min": state.policy.log_std_min, "log_std_max": state.policy.log_std_max}
        (peer.folder / f"{name}.json").write_text(json.dumps(settings), encoding="utf-8")
        given |= {"low": jnp.asarray(space.low), "high": jnp.asarray(space.high)}
        given |= {field: getattr(data.steps, field) for field in ("obs", "act", "next_obs", "terminal", "known_next")}
        policy = jax.tree.map(lambda x: x[0], state.policy) if name == "advil" else state.policy  # of one member
        given |= weights("policy", policy.net) | weights("critic", state.critic.net)
        arrays: dict[str, Any] = {key: np.asarray(value) for key, value in given.items()}
        np.savez(peer.folder / f"{name}.npz", **arrays)
    peer.run("check")
    for name, values in expected.items():
        with np.load(peer.folder / f"{name}-torch.npz") as theirs:
            for what, value in values.items():
                apart = np.abs(theirs[what] - np.asarray(value)).max() / np.abs(value).max()
                if not apart <= TOLERANCES[what]:
                    sys.exit(f"{name}: the {what} of understudy and PyTorch differ by {apart:.1e} of it")


# These functions split keys exactly as `update` does. If `update` changes, change them, or the check fails.


def advil_step(
    learner: AdVIL, state: AdVILState, data: Dataset, key: Key[Array, ""]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The random numbers of the single step of a round, and the expected values on its minibatch."""
    count = learner.batch_size
    batch_key, critic_key, _ = jax.random.split(jax.random.split(key, 1)[0], 3)
    act_key, mix_key = jax.random.split(critic_key)
    index = jax.random.randint(batch_key, (count,), 0, data.size)
    mix_keys = jax.random.split(mix_key, count)
    batch = state.normalization.encode(data.sample(batch_key, (count,)))
    expert = Samples(batch.t, batch.obs, batch.act, jnp.full(count, 1 / count))
    pair = ensemble_pair(state.policy, expert, state.critic.actions, act_key)
    between = jax.vmap(interpolate)(mix_keys, pair.learner, pair.expert)
    penalty = jax.vmap(gradient_penalty, (None, 0, 0, 0, None))(
        state.critic, expert.t, *between, learner.gradient_target
    ).mean()
    draws = {"index": index, "mix": jax.vmap(jax.random.uniform)(mix_keys)[:, None]}
    return draws, {"payoff": payoffs.payoff(state.critic, pair), "penalty": penalty}


def valuedice_step(
    learner: ValueDICE, state: ValueDICEState, data: Dataset, key: Key[Array, ""]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The random numbers of the single step of a round, and the expected values on its minibatch."""
    count, usable = learner.batch_size, UsableRows.of(data)
    batch_key, critic_key, policy_key = jax.random.split(jax.random.split(key, 1)[0], 3)
    payoff_key, mix_key = jax.random.split(critic_key)
    draw = draw_from_both(jax.random.split(batch_key)[0], count, usable.steps, usable.absorbing)
    index = jnp.where(draw.from_first, draw.first, data.size + draw.second)
    mix = jax.vmap(jax.random.uniform)(jax.random.split(mix_key, count))[:, None]
    # Acting at s and at s': noise for the critic's move, then for the policy's.
    noise_keys = jnp.stack([jax.random.split(k, 2 * count) for k in (payoff_key, policy_key)])
    noise = jax.vmap(jax.vmap(lambda k: jax.random.normal(k, (ACT,))))(noise_keys)
    payoff, _ = learner.payoff(state.policy, state.critic, learner._batch(state, data, usable, batch_key), payoff_key)
    return {"index": index, "mix": mix, "noise": noise}, {"payoff": payoff}


def moment(memory: optax.OptState) -> Float[Array, " n"]:
    """Adam's first moment in a player's memory."""

    def is_adam(part: Any) -> bool:
        return isinstance(part, optax.ScaleByAdamState)

    (adam,) = filter(is_adam, jax.tree.leaves(memory, is_leaf=is_adam))
    return ravel_pytree(adam.mu)[0]


def weights(name: str, net: MLP) -> dict[str, Array]:
    layers = enumerate(zip(net.weights, net.biases, strict=True))
    return {f"{name}_{kind}{i}": x for i, pair in layers for kind, x in zip(("weight", "bias"), pair, strict=True)}


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def write(path: Path, machine: str, rows: list[list[Any]]) -> None:
    """Write the rows, in place of earlier rows of this machine."""
    kept: dict[str, list[list[Any]]] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                kept.setdefault(row["machine"], []).append([row[column] for column in HEADER])
    kept[machine] = rows
    write_csv(path, HEADER, (row for group in kept.values() for row in group))


def log(began: float, what: str) -> None:
    print(f"{time.perf_counter() - began:6.0f} s  {what}", file=sys.stderr, flush=True)


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if jax.default_backend() not in ("cpu", "gpu"):
        sys.exit(f"JAX's device is a {jax.default_backend()}: PyTorch is compared on a CPU or a CUDA GPU")
    made_by_us = HERE.parent / ".venv-bench/bin/python"
    python = options.peer or (str(made_by_us) if made_by_us.exists() else sys.executable)
    demonstrations = random_demonstrations()
    made, began = provenance(), time.perf_counter()
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    machine = f"{cores()} cores, {made['device']}" if jax.default_backend() == "cpu" else made["device"]
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(python, Path(folder))
        check(peer, demonstrations)
        log(began, "both sides take the same step")
        for name in ("advil", "valuedice"):
            for runs in (1, MANY):
                ours(name, runs, demonstrations)  # compile
                log(began, f"{name}: the program of {runs} compiled and run")
            repeats = []
            for repeat in range(options.repeats):
                repeats.append((peer.run(name), ours(name, 1, demonstrations), ours(name, MANY, demonstrations)))
                log(began, f"{name}: repetition {repeat + 1} of {options.repeats}")
            fastest = min((one[0] for one in repeats), key=lambda answer: float(answer["ms"]))
            theirs, one, many = float(fastest["ms"]), min(x[1] for x in repeats), min(x[2] for x in repeats)
            if peer.device == "cpu" and fastest["share"] < QUIET:
                sys.exit(
                    f"the machine is busy: PyTorch got {fastest['share']:.0%} of it, {theirs:.1f} ms a step of {name}"
                )
            title = algorithm(name).card.title
            command = f"python benchmarks/off_q.py --repeats {options.repeats}"
            about = [command, f"{versions} {fastest['versions']}", machine, made["date"]]
            for what, spent, ratio in (
                ("eager PyTorch, one run", theirs, "1"),
                ("understudy, one run", one, f"{theirs / one:.1f} times faster"),
                (f"understudy, {MANY} runs in one program", many, f"{many / one:.1f} times the time of one"),
            ):
                rows.append([f"{title}, {what}", round(spent, 4), ratio, *about])
                print(f"{title + ', ' + what:<48}{spent:>10.4f} ms a step   {ratio}", flush=True)
            write(Path(options.out), machine, rows)  # after each algorithm, in case of an interruption


if __name__ == "__main__":
    main()
