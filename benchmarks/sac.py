"""A gradient step of SAC: understudy against Stable-Baselines3, and against the same step in eager PyTorch, in one run.

    python benchmarks/sac.py

It measures on the device that JAX finds. On a CPU the peer is Stable-Baselines3's own `SAC.train`, in the Python that
`make bench` makes; on a CUDA GPU it is the step written in eager PyTorch, plainly and tuned by hand. First it checks
that understudy and PyTorch take the same step from the same weights and draws. All have the replay at hand, and train
64 steps a call. They take turns, so that whatever else the machine does hits all alike; the fastest turn of each
counts. On a CPU that others keep busy the ratio says nothing: then nothing is written, unless asked for. It prints the
ratios and writes them, with what made them, to docs/results/sac-speed.csv, beside those of other machines.
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
from off_q import cores, moment, tell, weights, write
from understudy.core.types import Spec
from understudy.rl import SAC
from understudy.rl.base import Batch, Experience
from understudy.rl.sac import SACState
from understudy.train.results import provenance

HERE = Path(__file__).parent
OBS, ACT, BATCH, CAPACITY = 26, 6, 256, 100_000  # HalfCheetah's, and a replay that all fill
MANY = 5
SPEC = Spec((OBS,), us.Continuous((-1.0,) * ACT, (1.0,) * ACT), 1000)
SECONDS = {"cpu": 4.0, "gpu": 1.0}  # of a turn
# Of the largest number compared. The actor's loss comes after the critics' first move, and Adam's first move is as long
# for a gradient that is nearly zero, and so all rounding, as for any other.
TOLERANCES = {
    "critic_loss": 1e-4,
    "critics_moment": 1e-4,
    "actor_loss": 1e-3,
    "actor_moment": 1e-3,
    "entropy": 1e-4,
    "log_temperature": 1e-4,
}
QUIET = 0.9  # The least share of the cores that the peer's threads may have got.


@dataclass(frozen=True)
class Options:
    peer: str | None = None
    """A Python that has the peer. Default: the one that `make bench` makes, or else this one."""
    turns: int = 5
    """Turns for each."""
    anyway: bool = False
    """Write the numbers of a busy machine too, marked as such."""
    out: str = str(HERE.parent / "docs/results/sac-speed.csv")
    """Where the numbers go. Rows of other machines that are there already stay."""


class Replay(NamedTuple):
    """Each step is one row, (s, a, s', r, c, v): a minibatch is one gather."""

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
        unknown = jnp.full(len(index), jnp.inf)
        return Batch(obs, act, next_obs, reward[:, 0], bootstrap[:, 0], terminal_value[:, 0], unknown)


def turn(player: SAC, state: SACState, replay: Replay, key: Key[Array, ""]) -> tuple[SACState, dict[str, Array]]:
    nothing: Any = None  # SAC looks at no steps but the replay's
    return player.improve(state, Experience(replay.sample, nothing, nothing), jnp.asarray(0.0), key)


class Ours:
    """Some runs in one program, each with its own weights and draws."""

    def __init__(self, runs: int, player: SAC, replay: Replay):
        self.runs, self.player, self.replay = runs, player, replay
        keys = jax.random.split(jax.random.key(0), runs)
        self.states = jax.jit(jax.vmap(partial(player.init, spec=SPEC)))(keys)
        # One run is the plain program: a batch of one would be timed otherwise.
        if runs == 1:
            self.states = jax.tree.map(lambda x: x[0], self.states)
        call = turn if runs == 1 else jax.vmap(turn, (None, 0, None, 0))
        self.call = jax.jit(call, donate_argnums=1)
        self.turns = 0
        self.step(1)

    def step(self, calls: int) -> float:
        """Seconds for so many calls."""
        keys = [jax.random.key(self.turns + i) for i in range(calls)]
        if self.runs > 1:
            keys = [jax.random.split(key, self.runs) for key in keys]
        jax.block_until_ready((self.states, keys))  # type: ignore[no-untyped-call]
        began = time.perf_counter()
        for key in keys:
            self.states, metrics = self.call(self.player, self.states, self.replay, key)
        jax.block_until_ready(metrics)  # type: ignore[no-untyped-call]
        self.turns += calls
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics)), metrics
        return time.perf_counter() - began

    def ms(self) -> float:
        """Milliseconds for a gradient step of all runs."""
        calls = max(1, round(SECONDS[jax.default_backend()] / self.step(1)))
        return self.step(calls) / (calls * self.player.gradient_steps) * 1e3


class Peer:
    """Another library, in a Python of its own."""

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
        said = self.run("sb3_sac.py", json.dumps(self.settings), str(cores()))
        wide, deep = self.settings["hidden"]
        layers = [[wide, OBS + ACT], [deep, wide], [1, deep]] * 2
        assert said["layers"] == layers, f"the networks differ: {said['layers']}"
        return said

    def torch(self, task: str, style: str) -> dict[str, Any]:
        return self.run("torch_sac.py", str(self.folder), "cuda" if self.gpu else "cpu", str(cores()), task, style)

    def run(self, script: str, *arguments: str) -> dict[str, Any]:
        command = [self.python, str(HERE / "peers" / script), *arguments]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            sys.exit(f"the side of {self.name} failed: {reason} (--peer says which Python runs it)")
        return dict(json.loads(answer.stdout.splitlines()[-1]))


def check(peer: Peer, player: SAC, replay: Replay) -> None:
    """One step from the same weights with the same draws: understudy and PyTorch agree, or the program ends."""
    state = jax.jit(partial(player.init, spec=SPEC))(jax.random.key(1))
    index = jax.random.randint(jax.random.key(2), (BATCH,), 0, CAPACITY)
    noise = jax.random.normal(jax.random.key(3), (2, BATCH, ACT))
    given = {"rows": replay.rows, "index": index, "noise": noise, "log_temperature": state.log_temperature}
    given |= weights("actor", state.actor.net) | weights("critics", state.critics)
    arrays: dict[str, Any] = {name: np.asarray(x) for name, x in given.items()}
    np.savez(peer.folder / "sac.npz", **arrays)
    (peer.folder / "sac.json").write_text(json.dumps(peer.settings), encoding="utf-8")
    # PyTorch computes in full precision unless told otherwise, JAX on a GPU does not.
    with jax.default_matmul_precision("highest"):
        after, metrics = jax.jit(player.step)(state, replay.at(index), noise, player.lr)
    expected = {name: metrics[name] for name in ("critic_loss", "actor_loss", "entropy")}
    # Sorted: PyTorch's two ways keep the critics' parameters in orders of their own.
    expected |= {"critics_moment": jnp.sort(moment(after.critics_opt_state)), "actor_moment": moment(after.actor_opt_state)}
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
        tell(began, "understudy and PyTorch take the same step")
        ours = [Ours(runs, player, replay) for runs in (1, MANY)]
        tell(began, "compiled")
        turns = []
        for i in range(options.turns):
            said, one, many = peer.time("plain"), ours[0].ms(), ours[1].ms()
            tuned = float(peer.time("tuned")["ms"]) if peer.gpu else math.inf
            turns.append((said, one, many, tuned))
            tell(began, f"turn {i + 1} of {options.turns}: {said['ms']:.3f}, {one:.4f} and {many:.4f} ms a step")
    said = min((turn[0] for turn in turns), key=lambda answer: float(answer["ms"]))
    theirs, one, many, tuned = (
        float(said["ms"]),
        *(min(times) for times in zip(*(turn[1:] for turn in turns), strict=True)),
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
    busy = not peer.gpu and said["share"] < QUIET
    if busy and not options.anyway:
        sys.exit(f"the machine is busy: {peer.name} got {said['share']:.0%} of its cores (--anyway writes them)")
    machine = made["device"] if peer.gpu else f"{cores()} cores, {made['device']}"
    command = f"python benchmarks/sac.py --turns {options.turns}{' --anyway' if options.anyway else ''}"
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    where = machine + (f", busy ({said['share']:.0%})" if busy else "")
    about = [command, f"{versions} {said['versions']}", where, made["date"]]
    write(Path(options.out), where, [[what, round(ms, 4), ratio, *about] for what, ms, ratio in rows])


if __name__ == "__main__":
    main()
