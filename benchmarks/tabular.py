"""Time of exact evaluation, an equilibrium and MaxEnt on finite MDPs: understudy, NumPy and the `imitation` package.

    python benchmarks/tabular.py

Every MDP is random, with 50 states, 10 actions and 100 steps. There are three comparisons, each after a check that both
sides have the same result:

    evaluation      values, occupancy and J of 1,000 MDPs in one call; NumPy loops over MDPs and times, for 20 MDPs, and
                    its time is multiplied by 50
    equilibrium     the primal solution of the reward game over all rewards, to its certificate; the same in NumPy
    MaxEnt          one gradient (a soft backward pass and an occupancy), and a fit to the final moment error of MCE IRL
                    in `imitation` with its own settings

The sides alternate, so that other load on the machine affects both. The fastest repetition of each counts. The ratios
are printed and written to docs/results/tabular-speed.csv.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from understudy.tabular import FiniteMDP, occupancy, soft_response, values
from understudy.tabular.classical import feature_moments, maxent
from understudy.tabular.compiling import over_batches
from understudy.tabular.games import Game
from understudy.tabular.mdp import Table
from understudy.tabular.moments import reward_box
from understudy.tabular.solvers import CHECK_EVERY, PACE, solve
from understudy.train.tables import provenance, write_csv

HERE = Path(__file__).parent
STATES, ACTIONS, HORIZON = 50, 10, 100
MANY, SOME = 1000, 20
DELTA = 0.05
SHAPE = f"{STATES} states, {ACTIONS} actions, {HORIZON} steps"
HEADER = ["what", "ms", "ratio", "command", "versions", "machine", "date"]


@dataclass(frozen=True)
class Options:
    peer: str = ".venv-bench/bin/python"
    """A Python with `imitation` installed; `make bench` makes one."""
    repeats: int = 3
    """Repetitions of each."""
    out: str = str(HERE.parent / "docs/results/tabular-speed.csv")
    """CSV file of the times."""


def timed(function: Callable[[], Any]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    function()  # all sides return NumPy arrays, so the call is complete
    return (time.perf_counter() - began) * 1e3


def close(what: str, ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    apart = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())
    if not apart <= tolerance:
        sys.exit(f"{what}: the two sides differ by {apart:.1e}")


def random_mdps(count: int) -> FiniteMDP:
    random = np.random.default_rng(0)
    transitions = random.dirichlet(np.ones(STATES), (count, STATES, ACTIONS))
    return FiniteMDP(transitions, random.dirichlet(np.ones(STATES), count), HORIZON)


def one_mdp() -> FiniteMDP:
    return jax.tree.map(lambda leaf: leaf[0], random_mdps(1))


# Evaluation


@over_batches
def evaluate(mdp: FiniteMDP, reward: Table, policy: Table) -> tuple[Any, Any, Any]:
    """V^π, d^π and J(π)."""
    visited = occupancy(mdp, policy)
    return values(mdp, reward, policy), visited, jnp.sum(visited * reward)


def numpy_evaluate(transitions: Any, initial: Any, reward: Any, policy: Any) -> tuple[Any, Any, Any]:
    """The same for one MDP, with a loop over time and matrix products of NumPy."""
    flat = transitions.reshape(-1, STATES)
    value, visited = np.zeros((HORIZON + 1, STATES)), np.empty_like(policy)
    for t in reversed(range(HORIZON)):
        value[t] = (policy[t] * (reward[t] + (flat @ value[t + 1]).reshape(STATES, ACTIONS))).sum(1)
    state = initial
    for t in range(HORIZON):
        visited[t] = state[:, None] * policy[t]
        state = visited[t].ravel() @ flat
    return value[:-1], visited, (visited * reward).sum()


def evaluation(repeats: int) -> list[list[Any]]:
    random = np.random.default_rng(1)
    mdps = random_mdps(MANY)
    reward = random.uniform(-1, 1, (MANY, HORIZON, STATES, ACTIONS))
    policy = random.dirichlet(np.ones(ACTIONS), (MANY, HORIZON, STATES))
    tables = [np.asarray(leaf) for leaf in (mdps.dynamics.probabilities, mdps.initial)] + [reward, policy]  # type: ignore[attr-defined]

    def in_numpy() -> list[tuple[Any, Any, Any]]:
        return [numpy_evaluate(*(table[i] for table in tables)) for i in range(SOME)]

    with jax.enable_x64(True):
        on_device = jnp.asarray(reward), jnp.asarray(policy)
    found = evaluate(mdps, *on_device)  # compile
    for i, other in enumerate(in_numpy()):
        for what, ours, theirs in zip(("values", "occupancy", "J"), found, other, strict=True):
            close(what, ours[i], theirs)
    taken = [(timed(in_numpy) * MANY / SOME, timed(lambda: evaluate(mdps, *on_device))) for _ in range(repeats)]
    theirs, ours = (min(repeat[side] for repeat in taken) for side in (0, 1))
    name = f"exact evaluation of {MANY} MDPs ({SHAPE})"
    return rows(f"{name}, NumPy loops (timed on {SOME}, scaled)", theirs, f"{name}, understudy, one call", ours)


# Equilibrium


def numpy_soft(transitions: Any, cost: Any, temperature: float) -> Any:
    value, policy = np.zeros(STATES), np.empty(cost.shape)
    for t in reversed(range(HORIZON)):
        logits = -(cost[t] + (transitions.reshape(-1, STATES) @ value).reshape(STATES, ACTIONS)) / temperature
        top = logits.max(1, keepdims=True)
        weights = np.exp(logits - top)
        total = weights.sum(1, keepdims=True)
        policy[t], value = weights / total, -temperature * (top + np.log(total))[:, 0]
    return policy


def numpy_occupancy(transitions: Any, initial: Any, policy: Any) -> Any:
    visited, state = np.empty_like(policy), initial
    for t in range(HORIZON):
        visited[t] = state[:, None] * policy[t]
        state = visited[t].ravel() @ transitions.reshape(-1, STATES)
    return visited


def numpy_least(transitions: Any, initial: Any, cost: Any) -> float:
    """min over π of E_π Σ_t cost_t."""
    value = np.zeros(STATES)
    for t in reversed(range(HORIZON)):
        value = (cost[t] + (transitions.reshape(-1, STATES) @ value).reshape(STATES, ACTIONS)).min(1)
    return float(initial @ value)


def numpy_solve(transitions: Any, initial: Any, expert: Any) -> tuple[int, float]:
    """The primal of `solve` for the reward game over |f| ≤ 1/2: iterations and certificate."""
    of_expert = numpy_occupancy(transitions, initial, expert)
    cost, squares, strategies, functions = np.zeros_like(expert), 1e-12, np.zeros_like(expert), np.zeros_like(expert)
    n = 0
    while True:
        n += 1
        visited = numpy_occupancy(transitions, initial, numpy_soft(transitions, cost, PACE * np.sqrt(squares)))
        f = np.sign(visited - of_expert) / 2
        cost, squares = cost + f / HORIZON, squares + np.abs(f).max() ** 2 / HORIZON**2
        strategies, functions = strategies + visited, functions + f
        if n % CHECK_EVERY == 0:
            most = np.abs(strategies / n - of_expert).sum() / 2 / HORIZON
            least = (numpy_least(transitions, initial, functions / n) - (of_expert * functions / n).sum()) / HORIZON
            if most - least <= DELTA:
                return n, most - least


def equilibrium(repeats: int) -> list[list[Any]]:
    mdp = one_mdp()
    expert = np.random.default_rng(2).dirichlet(np.full(ACTIONS, 0.3), (HORIZON, STATES))
    transitions, initial = np.asarray(mdp.dynamics.probabilities), np.asarray(mdp.initial)  # type: ignore[attr-defined]
    game, moments = Game("reward", mdp, expert), reward_box(mdp)
    found = solve(game, moments, "primal", DELTA)  # compile
    iterations, certificate = numpy_solve(transitions, initial, expert)
    close("iterations", found.iterations, iterations)
    close("certificate", found.certificate, certificate, 1e-8)
    taken = [
        (
            timed(lambda: numpy_solve(transitions, initial, expert)),
            timed(lambda: solve(game, moments, "primal", DELTA).policy),
        )
        for _ in range(repeats)
    ]
    theirs, ours = (min(repeat[side] for repeat in taken) for side in (0, 1))
    name = f"equilibrium of the reward game, primal, δ = {DELTA}, {iterations} iterations ({SHAPE})"
    return rows(f"{name}, NumPy loops", theirs, f"{name}, understudy", ours)


# MaxEnt


def max_ent(peer: str, repeats: int) -> tuple[list[list[Any]], str]:
    mdp = one_mdp()
    features = np.repeat(np.eye(STATES)[:, None], ACTIONS, axis=1)  # rewards of `imitation` depend on states only
    reward = np.random.default_rng(3).normal(size=STATES)
    cost = np.broadcast_to(-reward[:, None], mdp.shape)
    expert = soft_response(mdp, cost, 1.0)
    visited = np.asarray(occupancy(mdp, expert))
    transitions = np.asarray(mdp.dynamics.probabilities)  # type: ignore[attr-defined]
    after = visited[-1].ravel() @ transitions.reshape(-1, STATES)
    # `imitation` also counts the state after the last step.
    given: dict[str, Any] = {"transitions": transitions, "initial": np.asarray(mdp.initial), "reward": reward}
    given |= {"horizon": HORIZON, "visits": visited.sum((0, 2)) + after}

    def gradient() -> Any:
        return occupancy(mdp, soft_response(mdp, cost, 1.0))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "mce.npz", **given)
        repeats = 20
        answers, gradients, fits = [], [], []
        for _ in range(repeats):
            answers.append(ask(peer, folder, repeats))
            with np.load(folder / "mce-imitation.npz") as theirs:
                close("policy", expert, theirs["policy"])
                close("occupancy", visited.sum(-1), theirs["states"][:-1])
                fitted = theirs["fitted"]
            error = moment_error(mdp, features, fitted, expert)
            for attempt in range(2):  # the first may compile
                spent = timed(lambda: [gradient() for _ in range(repeats)]) / repeats
                began = time.perf_counter()
                found = maxent(mdp, features, expert, tolerance=error)
                if attempt:
                    gradients.append(spent)
                    fits.append((time.perf_counter() - began) * 1e3)
            if not found.met:
                sys.exit(f"MaxEnt ended with error {found.error:.1e}, asked for {error:.1e}")
    fastest = min(answers, key=lambda answer: float(answer["fit"]))
    steps, ours = fastest["steps"], int(found.iterations)
    one = f"MaxEnt, a gradient ({SHAPE})"
    whole = f"MaxEnt, a fit to moment error {error:.1e} ({SHAPE})"
    return [
        *rows(f"{one}, imitation", min(a["ms"] for a in answers), f"{one}, understudy", min(gradients)),
        *rows(
            f"{whole}, imitation, {steps} steps of Adam",
            fastest["fit"] * 1e3,
            f"{whole}, understudy, {ours} Newton steps, error {found.error:.1e}",
            min(fits),
        ),
    ], fastest["versions"]


def ask(peer: str, folder: Path, repeats: int) -> dict[str, Any]:
    command = [peer, str(HERE / "peers/imitation_mce.py"), str(folder), str(repeats)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"imitation's side failed: {reason} (--peer says which Python runs it)")
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def moment_error(mdp: FiniteMDP, features: Any, policy: Any, expert: Any) -> float:
    apart = np.asarray(feature_moments(mdp, features, policy)) - np.asarray(feature_moments(mdp, features, expert))
    return float(np.linalg.norm(apart))


def rows(their_name: str, theirs: float, our_name: str, ours: float) -> list[list[Any]]:
    ratio = theirs / ours
    return [
        [their_name, round(theirs, 3), "1"],
        [our_name, round(ours, 3), f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times slower"],
    ]


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if not Path(options.peer).exists():
        sys.exit(f"no Python at {options.peer}: `make bench` makes it")
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    table, peer_versions = max_ent(options.peer, options.repeats)
    table = [*evaluation(options.repeats), *equilibrium(options.repeats), *table]
    command = f"python benchmarks/tabular.py --repeats {options.repeats}"
    about = [command, f"{versions} {peer_versions}", f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    write_csv(Path(options.out), HEADER, ([*row, *about] for row in table))
    for name, milliseconds, ratio in table:
        print(f"{name}: {milliseconds} ms   {ratio}")


if __name__ == "__main__":
    main()
