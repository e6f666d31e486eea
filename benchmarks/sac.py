"""Time of a gradient step of SAC: understudy, Stable-Baselines3, and the same step in eager PyTorch.

    python benchmarks/sac.py

It runs on JAX's default device. On a CPU the peer is `SAC.train` of Stable-Baselines3, in the Python of `make bench`;
on a CUDA GPU it is the step in eager PyTorch, in a plain and in a hand-tuned version. First it checks that understudy
and PyTorch take the same step from the same weights and random numbers. All have a filled replay buffer and train 64
steps per call. They alternate, so that other load on the machine affects all. The fastest repetition of each counts. On
a busy CPU the ratio is meaningless, so nothing is written unless --anyway is given. The ratios are printed and written
to docs/results/sac-speed.csv; rows of other machines stay.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Float, Key

import understudy as us
from off_q import cores, log, moment, weights, write
from understudy.core.types import Spec
from understudy.rl import SAC
from understudy.rl.base import Batch, Experience
from understudy.rl.sac import SACState
from understudy.train.tables import provenance

HERE = Path(__file__).parent
OBS, ACT, BATCH, CAPACITY = 26, 6, 256, 100_000  # sizes of HalfCheetah, and of the replay buffer
MANY = 5
SPEC = Spec((OBS,), us.Continuous((-1.0,) * ACT, (1.0,) * ACT), 1000)
SECONDS = {"cpu": 4.0, "gpu": 1.0}  # per repetition
# Relative to the largest number compared. The actor's loss follows the critics' first step; see off_q.py.
TOLERANCES = {
    "critic_loss": 1e-4,
    "critics_moment": 1e-4,
    "actor_loss": 1e-3,
    "actor_moment": 1e-3,
    "entropy": 1e-4,
    "log_temperature": 1e-4,
}
QUIET = 0.9  # The minimum share of CPU time for the peer's threads.


@dataclass(frozen=True)
class Options:
    peer: str | None = None
    """A Python with the peer. Default: the one of `make bench`, or this one."""
    repeats: int = 5
    """Repetitions of each."""
    anyway: bool = False
    """Write the times of a busy machine, too, and mark them."""
    out: str = str(HERE.parent / "docs/results/sac-speed.csv")
    """CSV file of the times. Rows of other machines stay."""


class Replay(NamedTuple):
    """A replay buffer with one row per step, (s, a, s', r, c, v), so that a minibatch is one gather."""

    rows: Float[Array, "n row"]

    @classmethod
    def random(cls) -> "Replay":
        random = np.random.default_rng(0)
        parts = [
            random.normal(size=(CAPACITY, OBS)),
            random.uniform(-1, 1, (CAPACITY, ACT)),
            random.normal(size=(CAPACITY, OBS + 1)),
            random.uniform(size=(CAPACITY, 1)) < 0.99,
            np.zeros((CAPACITY, 1)),
        ]
        return cls(jnp.asarray(np.concatenate(parts, 1), jnp.float32))

    def sample(self, key: Key[Array, ""]) -> Batch:
        return self.at(jax.random.randint(key, (BATCH,), 0, CAPACITY))

    def at(self, index: Array) -> Batch:
        row = self.rows[index]
        obs, act, next_obs, reward, bootstrap, terminal_value = jnp.split(
            row, np.cumsum([OBS, ACT, OBS, 1, 1]).tolist(), axis=-1
        )
        unknown, own = jnp.full(len(index), jnp.inf), jnp.zeros(len(index))
        return Batch(obs, act, next_obs, reward[:, 0], bootstrap[:, 0], terminal_value[:, 0], unknown, own)


def update(player: SAC, state: SACState, replay: Replay, key: Key[Array, ""]) -> tuple[SACState, dict[str, Array]]:
    nothing: Any = None  # SAC uses only the replay buffer
    return player.improve(state, Experience(replay.sample, nothing, nothing), jnp.asarray(0.0), key)


class Ours:
    """Several runs in one program, each with its own weights and random numbers."""

    def __init__(self, runs: int, player: SAC, replay: Replay):
        self.runs, self.player, self.replay = runs, player, replay
        keys = jax.random.split(jax.random.key(0), runs)
        self.states = jax.jit(jax.vmap(partial(player.init, spec=SPEC)))(keys)
        # A single run is timed without vmap.
        if runs == 1:
            self.states = jax.tree.map(lambda x: x[0], self.states)
        call = update if runs == 1 else jax.vmap(update, (None, 0, None, 0))
        self.call = jax.jit(call, donate_argnums=1)
        self.calls = 0
        self.step(1)

    def step(self, calls: int) -> float:
        """Seconds of this many calls."""
        keys = [jax.random.key(self.calls + i) for i in range(calls)]
        if self.runs > 1:
            keys = [jax.random.split(key, self.runs) for key in keys]
        jax.block_until_ready((self.states, keys))  # type: ignore[no-untyped-call]
        began = time.perf_counter()
        for key in keys:
            self.states, metrics = self.call(self.player, self.states, self.replay, key)
        jax.block_until_ready(metrics)  # type: ignore[no-untyped-call]
        self.calls += calls
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics)), metrics
        return time.perf_counter() - began

    def ms(self) -> float:
        """Milliseconds of a gradient step of all runs."""
        calls = max(1, round(SECONDS[jax.default_backend()] / self.step(1)))
        return self.step(calls) / (calls * self.player.gradient_steps) * 1e3


class Peer:
    """Another library, in another process."""

    def __init__(self, python: str, folder: Path, player: SAC):
        self.python, self.folder, self.gpu = python, folder, jax.default_backend() == "gpu"
        self.settings: dict[str, Any] = {
            "obs": OBS,
            "act": ACT,
            "batch": BATCH,
            "capacity": CAPACITY,
            "hidden": list(player.hidden),
            "steps": player.gradient_steps,
            "lr": player.lr,
            "discount": player.discount,
            "tau": player.tau,
        }

    @property
    def name(self) -> str:
        return "eager PyTorch" if self.gpu else "Stable-Baselines3"

    def time(self, style: str) -> dict[str, Any]:
        if self.gpu:
            return self.torch("time", style)
        answer = self.run("sb3_sac.py", json.dumps(self.settings), str(cores()))
        wide, deep = self.settings["hidden"]
        layers = [[wide, OBS + ACT], [deep, wide], [1, deep]] * 2
        assert answer["layers"] == layers, f"the networks differ: {answer['layers']}"
        return answer

    def torch(self, task: str, style: str) -> dict[str, Any]:
        return self.run("torch_sac.py", str(self.folder), "cuda" if self.gpu else "cpu", str(cores()), task, style)

    def run(self, script: str, *arguments: str) -> dict[str, Any]:
        command = [self.python, str(HERE / "peers" / script), *arguments]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            sys.exit(f"the side of {self.name} failed: {reason} (choose its Python with --peer)")
        return dict(json.loads(answer.stdout.splitlines()[-1]))


def check(peer: Peer, player: SAC, replay: Replay) -> None:
    """Check that both sides take the same step from the same weights and random numbers; exit if they do not."""
    state = jax.jit(partial(player.init, spec=SPEC))(jax.random.key(1))
    index = jax.random.randint(jax.random.key(2), (BATCH,), 0, CAPACITY)
    noise = jax.random.normal(jax.random.key(3), (2, BATCH, ACT))
    given = {"rows": replay.rows, "index": index, "noise": noise, "log_temperature": state.log_temperature}
    given |= weights("actor", state.actor.net) | weights("critics", state.critics)
    arrays: dict[str, Any] = {name: np.asarray(x) for name, x in given.items()}
    np.savez(peer.folder / "sac.npz", **arrays)
    (peer.folder / "sac.json").write_text(json.dumps(peer.settings), encoding="utf-8")
    # By default PyTorch computes in full precision, and JAX on a GPU does not.
    with jax.default_matmul_precision("highest"):
        after, metrics = jax.jit(player.step)(state, replay.at(index), noise, player.lr)
    expected = {name: metrics[name] for name in ("critic_loss", "actor_loss", "entropy")}
    # Sorted, because the two PyTorch versions store the critics' parameters in different orders.
    expected |= {
        "critics_moment": jnp.sort(moment(after.critics_opt_state)),
        "actor_moment": moment(after.actor_opt_state),
    }
    expected |= {"log_temperature": after.log_temperature}
    for style in ("plain", "tuned"):
        peer.torch("check", style)
        with np.load(peer.folder / "sac-torch.npz") as theirs:
            for what, value in expected.items():
                apart = np.abs(theirs[what] - np.asarray(value)).max() / np.abs(value).max()
                if not apart <= TOLERANCES[what]:
                    sys.exit(f"the {what} of understudy and {style} PyTorch differ by {apart:.1e} of it")


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if jax.default_backend() not in ("cpu", "gpu"):
        sys.exit(f"JAX's device is a {jax.default_backend()}: this compares on a CPU or a CUDA GPU")
    made_by_us = HERE.parent / ".venv-bench/bin/python"
    python = options.peer or (str(made_by_us) if made_by_us.exists() else sys.executable)
    made, began, player, replay = provenance(), time.perf_counter(), SAC(), Replay.random()
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(python, Path(folder), player)
        check(peer, player, replay)
        log(began, "understudy and PyTorch take the same step")
        ours = [Ours(runs, player, replay) for runs in (1, MANY)]
        log(began, "compiled")
        repeats = []
        for i in range(options.repeats):
            answer, one, many = peer.time("plain"), ours[0].ms(), ours[1].ms()
            tuned = float(peer.time("tuned")["ms"]) if peer.gpu else math.inf
            repeats.append((answer, one, many, tuned))
            log(
                began,
                f"repetition {i + 1} of {options.repeats}: {answer['ms']:.3f}, {one:.4f} and {many:.4f} ms a step",
            )
    fastest = min((repeat[0] for repeat in repeats), key=lambda answer: float(answer["ms"]))
    theirs, one, many, tuned = (
        float(fastest["ms"]),
        *(min(times) for times in zip(*(repeat[1:] for repeat in repeats), strict=True)),
    )
    rows = [
        (f"{peer.name}, one run", theirs, "1"),
        ("understudy, one run", one, f"{theirs / one:.1f} times faster"),
        (f"understudy, {MANY} runs in one program", many, f"{many / one:.1f} times the time of one"),
        (f"understudy, {MANY} runs, for each run", many / MANY, f"{MANY * theirs / many:.1f} times faster"),
    ]
    if peer.gpu:
        rows[1:1] = [(f"{peer.name}, tuned by hand, one run", tuned, f"{theirs / tuned:.1f} times faster")]
    for what, spent_ms, ratio in rows:
        print(f"{what:<40}{spent_ms:>10.4f} ms a step   {ratio}", flush=True)
    busy = not peer.gpu and fastest["share"] < QUIET
    if busy and not options.anyway:
        sys.exit(f"the machine is busy: {peer.name} got {fastest['share']:.0%} of its cores (--anyway writes them)")
    machine = made["device"] if peer.gpu else f"{cores()} cores, {made['device']}"
    command = f"python benchmarks/sac.py --repeats {options.repeats}{' --anyway' if options.anyway else ''}"
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    where = machine + (f", busy ({fastest['share']:.0%})" if busy else "")
    about = [command, f"{versions} {fastest['versions']}", where, made["date"]]
    write(Path(options.out), where, [[what, round(ms, 4), ratio, *about] for what, ms, ratio in rows])


if __name__ == "__main__":
    main()
