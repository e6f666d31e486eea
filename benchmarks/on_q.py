"""Time of a round of DAeQuIL in the forest: understudy and the same round in eager PyTorch.

    python benchmarks/on_q.py

A round is ten episodes of the learner, the expert's actions at their states, 1,000 steps of a new critic and 2,000 of
the policy, with the paper's settings and two moments. First it checks that both sides fly the same paths with the same
weights, offer the expert the same headings, and have the same losses and gradients on the same minibatches. Then they
alternate, so that other load on the machine affects both. The fastest repetition of each counts. On a busy CPU the
ratios are meaningless, so nothing is written unless --anyway is given. The ratios are printed and written to
docs/results/on-q-speed.csv.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

import understudy as us
from off_q import cores, log, moment, weights
from understudy.algorithms.on_q.daequil import DAeQuIL, DAeQuILState
from understudy.collect.base import NO_LIMIT, Collector
from understudy.collect.episodes import JaxEpisodes
from understudy.collect.rollouts import play
from understudy.core.types import Dataset, RoundData
from understudy.envs.forest import Dodge, Forest
from understudy.game.critics import MLPCritic, gradient_penalty
from understudy.paper.forest_trials import swerve
from understudy.train import loop as run
from understudy.train.results import hyperparameters
from understudy.train.tables import provenance, write_csv

HERE = Path(__file__).parent
MANY = 10
CHECKED = 5  # The checked round, from which PyTorch continues. Earlier rounds have different critics.
CRITIC_STEPS = 10  # In the checked round: enough to check the critic's optimizer.
# Relative to the largest number compared. The payoff follows the critic's steps; see off_q.py.
TOLERANCES = {
    "lengths": 0.0,
    "heights": 1e-4,
    "critic_loss": 1e-4,
    "critic_gradient": 1e-4,
    "payoff": 1e-3,
    "policy_loss": 1e-4,
    "policy_gradient": 1e-4,
}
EDGES = 0.02  # Allowed share of headings on which the two experts differ: those that just touch a tree.
# Minimum shares of CPU time: PyTorch and one run, which use one core, and many runs, which use all and wait for each
# other at the end of a round.
QUIET = (0.97, 0.97, 0.9)
HEADER = ["what", "ms_a_round", "ratio", "command", "versions", "machine", "date"]


@dataclass(frozen=True)
class Options:
    peer: str | None = None
    """A Python with PyTorch. Default: the one of `make bench`, or this one."""
    repeats: int = 3
    """Repetitions of each."""
    anyway: bool = False
    """Write the times of a busy machine, too, and mark them."""
    out: str = str(HERE.parent / "docs/results/on-q-speed.csv")
    """CSV file of the times."""


class Timing(NamedTuple):
    ms: float
    """Per round."""
    share: float
    """CPU time divided by wall-clock time and cores."""


class Bench:
    """The forest, demonstrations, and the learner with the paper's settings."""

    def __init__(self) -> None:
        self.forest = Forest()
        self.learner: DAeQuIL = us.daequil.preset("forest", moments=swerve)
        self.demonstrations = us.load("Forest", episodes=10).for_task(self.forest.spec, self.forest.name)
        self.episodes = JaxEpisodes(self.forest, self.forest.expert())
        self.spec = self.demonstrations.spec

    def data(self, runs: int) -> Dataset:
        return self.demonstrations.split([self.demonstrations.episodes] * runs, 0.0)[0]

    def train(self, runs: int, visit: run.Visit) -> None:
        keys = jax.random.split(jax.random.key(0), runs)
        training = run.train(self.learner, self.spec, self.data(runs), keys, Collector(self.episodes), visit=visit)
        # A run that stops early takes no time.
        assert set(training.statuses) == {"finished"}, training.statuses

    def ours(self, runs: int) -> Timing:
        """Time of a round of `runs` runs in one program. The first, cloning, is not counted: it may compile."""
        began = worked = 0.0

        def visit(done: int, states: Any) -> None:
            nonlocal began, worked
            if done == 1:
                jax.block_until_ready(states())  # type: ignore[no-untyped-call]
                began, worked = time.perf_counter(), time.process_time()

        self.train(runs, visit)
        spent, used = time.perf_counter() - began, min(runs, cores())
        return Timing(spent / (self.learner.rounds - 1) * 1e3, (time.process_time() - worked) / (spent * used))

    def states(self, runs: int, rounds: int) -> DAeQuILState:
        """The states of the runs after this many rounds."""
        kept: list[DAeQuILState] = []

        def visit(done: int, states: Any) -> None:
            if done == rounds:
                kept.append(states())

        self.train(runs, visit)
        return kept[0]


class Peer:
    """PyTorch in another process; the two exchange files in a folder."""

    def __init__(self, python: str, folder: Path):
        self.python, self.folder = python, folder

    def run(self, task: str) -> dict[str, Any]:
        # Its arrays are too small for several threads.
        command = [self.python, str(HERE / "peers/torch_forest.py"), str(self.folder), "1", task]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            sys.exit(f"the PyTorch side failed: {reason} (choose its Python with --peer)")
        return dict(json.loads(answer.stdout.splitlines()[-1]))


def check(peer: Peer, bench: Bench) -> None:
    """Check that the deterministic parts of both sides agree; exit if they do not."""
    states = bench.states(MANY, CHECKED)
    state: DAeQuILState = jax.tree.map(lambda x: x[0], states)
    given, expected = flights(bench, states)
    step_given, step_expected = one_step(bench, state)
    given |= step_given | {"trees": bench.forest.trees} | weights("policy", state.policy.net)
    given |= {name: getattr(state.normalization, name) for name in ("obs_mean", "obs_std", "act_center", "act_scale")}
    arrays: dict[str, Any] = {name: np.asarray(x) for name, x in given.items()}
    np.savez(peer.folder / "round.npz", **arrays)
    (peer.folder / "settings.json").write_text(json.dumps(hyperparameters(bench.learner)), encoding="utf-8")
    peer.run("check")
    expected |= step_expected
    with np.load(peer.folder / "round-torch.npz") as theirs:
        edges = np.mean(theirs["choices"] != np.isfinite(expected.pop("choices")))
        if edges > EDGES:
            sys.exit(f"the experts of understudy and PyTorch differ on {edges:.1%} of the headings")
        for what, value in expected.items():
            apart = np.abs(theirs[what] - np.asarray(value)).max() / np.abs(value).max()
            if not apart <= TOLERANCES[what]:
                sys.exit(f"the {what} of understudy and PyTorch differ by {apart:.1e} of it")


def flights(bench: Bench, states: DAeQuILState) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policies of the runs, and the lengths and heights of their flights."""
    keys = jax.random.split(jax.random.key(0), bench.learner.episodes_per_round)
    played = jax.vmap(lambda state: play(bench.forest, bench.learner.policy(state), keys, False))(states)
    lengths = played.alive.sum(-1)
    last = (lengths - 1)[..., None]
    heights = jnp.take_along_axis(played.steps.next_obs[..., 2], last, -1)[..., 0]
    given: dict[str, Any] = {"policies": MANY}
    for i in range(MANY):
        given |= weights(f"policy{i}", jax.tree.map(lambda x, i=i: x[i], states.policy.net))
    return given, {"lengths": lengths, "heights": heights}


def one_step(bench: Bench, state: DAeQuILState) -> tuple[dict[str, Any], dict[str, Any]]:
    """A short round from `state`: its inputs with all minibatches, and the expected values.

    Keys are split exactly as in `update`. If `update` changes, change this, or the check fails.
    """
    learner: DAeQuIL = us.daequil.preset("forest", moments=swerve, critic_steps=CRITIC_STEPS, gradient_steps=1)
    state = state._replace(
        memory=jax.tree.map(jnp.zeros_like, state.memory)
    )  # so that Adam's first moment is a tenth of the gradient
    left = jnp.asarray(NO_LIMIT)
    collected = bench.episodes.collect_run(learner, state, left, jax.random.key(1), state.round)
    assert collected.expert_actions is not None
    assert collected.rollouts is not None
    rollouts = collected.rollouts
    # Avoid the kinks, where the two libraries use different derivatives: that of |x| (1 in JAX, 0 in PyTorch), where
    # the expert keeps its heading, and that of ReLU (1/2 and 0), where a network has no biases.
    expert_actions = collected.expert_actions + 0.01
    state = state._replace(critics=jax.tree.map(lambda x: x.at[state.round].add(0.01), state.critics))
    shared = bench.data(1)
    demonstrations = shared.of(0)
    key, size, batch = jax.random.key(2), int(rollouts.size), (learner.batch_size,)
    critic_key, policy_key = jax.random.split(key)
    critic_keys = jax.random.split(jax.random.split(critic_key, 3)[1], CRITIC_STEPS)
    demonstrated_key, visited_key = jax.random.split(jax.random.split(policy_key, 1)[0])
    critic_index = jnp.stack([jax.random.randint(k, batch, 0, size) for k in critic_keys])
    demonstrated = jax.random.randint(demonstrated_key, batch, 0, demonstrations.size)
    visited = jax.random.randint(visited_key, batch, 0, state.aggregated.size + size)
    loss, gradient = critic_step(learner, state, rollouts, expert_actions, critic_index[0])
    data = RoundData(demonstrations, rollouts, expert_actions, answered=collected.answered)
    after, info = jax.jit(learner.update)(state, data, key)
    past, round_, steps = int(state.aggregated.size), int(state.round), rollouts.steps
    assert isinstance(state.critics, MLPCritic)
    critics = weights("critics", jax.tree.map(lambda x: x[:round_], state.critics.net))
    for name, net in (("fresh", state.critics.net), ("trained", after.critics.net)):
        critics |= weights(name, jax.tree.map(lambda x: x[round_], net))
    given = {
        "demonstrated_obs": demonstrations.steps.obs[: demonstrations.size],
        "demonstrated_act": demonstrations.steps.act[: demonstrations.size],
        "history_obs": state.aggregated.steps.obs[:past],
        "history_round": state.aggregated.steps.round[:past],
        "round_obs": steps.obs[:size],
        "round_act": steps.act[:size],
        "round_expert_actions": expert_actions[:size],
        "critic_index": critic_index,
        "demonstrated_index": demonstrated,
        "visited_index": visited,
    }
    expert = bench.forest.expert()
    assert isinstance(expert, Dodge)
    expected = {
        "choices": expert.logits(steps.obs[:size]),
        "critic_loss": loss,
        "critic_gradient": gradient,
        "payoff": info.metrics["payoff"],
        "policy_loss": info.metrics["loss"],
        "policy_gradient": moment(after.memory) / 0.1,
    }
    return given | critics, expected


def critic_step(
    learner: DAeQuIL, state: DAeQuILState, visited: Dataset, expert_actions: Array, index: Array
) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """The loss of the round's new critic on a minibatch, and its gradient."""
    steps, answers = jax.tree.map(lambda x: x[index], (visited.steps, expert_actions))

    def loss(critic: Any) -> Float[Array, ""]:
        slopes = jax.vmap(gradient_penalty, (None, 0, 0, 0, None))
        penalty = sum(slopes(critic, steps.t, steps.obs, act, 0.0).mean() for act in (steps.act, answers))
        return learner.gradient_weight * penalty - learner.gaps(state, critic, steps, answers).mean()

    fresh = jax.tree.map(lambda x: x[state.round], state.critics)
    value, gradient = jax.value_and_grad(loss)(fresh)
    return value, ravel_pytree(gradient)[0]


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if jax.default_backend() != "cpu":
        sys.exit(f"JAX's device is a {jax.default_backend()}: this compares on a CPU, set JAX_PLATFORMS=cpu")
    made_by_us = HERE.parent / ".venv-bench/bin/python"
    python = options.peer or (str(made_by_us) if made_by_us.exists() else sys.executable)
    made, began, bench = provenance(), time.perf_counter(), Bench()
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(python, Path(folder))
        check(peer, bench)
        log(began, f"both sides agree; the program of {MANY} compiled")
        bench.ours(1)
        log(began, "the program of 1 compiled")
        repeats = []
        for repeat in range(options.repeats):
            answer = peer.run("time")
            repeats.append((Timing(answer["ms"], answer["share"]), bench.ours(1), bench.ours(MANY)))
            shares = ", ".join(f"{side.ms:.0f} ms with {side.share:.0%}" for side in repeats[-1])
            log(began, f"repetition {repeat + 1} of {options.repeats}: {shares} of the cores it uses")
    best = [min(side) for side in zip(*repeats, strict=True)]
    theirs, one, many = (side.ms for side in best)
    share = min(side.share for side in best)
    busy = any(side.share < least for side, least in zip(best, QUIET, strict=True))
    title = bench.learner.card.title
    rows = [
        (f"{title}, eager PyTorch, one run", theirs, "1"),
        (f"{title}, understudy, one run", one, f"{theirs / one:.1f} times faster"),
        (f"{title}, understudy, {MANY} runs in one program", many, f"{many / one:.1f} times the time of one"),
        (f"{title}, understudy, {MANY} runs, for each run", many / MANY, f"{MANY * theirs / many:.1f} times faster"),
    ]
    for what, spent, ratio in rows:
        print(f"{what:<48}{spent:>10.1f} ms a round   {ratio}", flush=True)
    if busy and not options.anyway:
        sys.exit(f"the machine is busy: one of these got {share:.0%} of the cores it uses (--anyway writes them)")
    command = f"python benchmarks/on_q.py --repeats {options.repeats}{' --anyway' if options.anyway else ''}"
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    machine = f"{cores()} cores, {made['device']}" + (f", busy ({share:.0%})" if busy else "")
    about = [command, f"{versions} {answer['versions']}", machine, made["date"]]
    write_csv(Path(options.out), HEADER, ([what, round(spent, 1), ratio, *about] for what, spent, ratio in rows))


if __name__ == "__main__":
    main()
