"""Replay estimation beside the demonstrations and a clone's unweighted replays, as estimates of the expert's moments.

    python benchmarks/replay_estimation.py finite      # exact, on two finite MDPs: docs/results/replay-estimation.csv
    python benchmarks/replay_estimation.py pendulum    # with networks: docs/results/replay-estimation-pendulum.csv
    python benchmarks/replay_estimation.py returns     # AdRIL: docs/results/replay-estimation-returns.csv

finite: the mean error over 20 draws of the demonstrations, for all moments with |f| ≤ 1 (`tabular.replays`), on `ledge`
and on a random MDP. pendulum: the distance of the estimate's kernel mean from that of 200 fresh episodes of the expert,
on three disjoint sets of demonstrations. returns: three seeds, small networks, the first demonstrations.
"""

import csv
import warnings
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import tyro

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import understudy as us
from understudy.algorithms.reward.averages import mean_features
from understudy.core.types import Dataset, Transition
from understudy.envs import make
from understudy.game.kernels import GaussianKernel
from understudy.tabular.mdp import FiniteMDP
from understudy.tabular.planning import occupancy
from understudy.tabular.replays import cloned, draw_paths, empirical, ledge, moment_error, replay_estimate
from understudy.train import replays
from understudy.train.final import Player
from understudy.train.tables import provenance, result_rows, write_csv

FOLDER = Path(__file__).parents[1] / "docs/results"
DRAWS, COUNTS, ESTIMATES = (
    20,
    (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    ("demonstrations", "clone", "halves", "10 folds"),
)
NETWORK_COUNTS, FRESH, FEATURES, EPISODES = (2, 3, 5, 8), 200, 2048, 100
RETURNS_COUNTS, SEEDS = [3, 5], 3


def forgetful(states: int = 10, actions: int = 3, horizon: int = 10) -> tuple[FiniteMDP, np.ndarray]:
    """A random MDP where mistakes are forgotten in a step or two, and a random deterministic expert."""
    rng = np.random.default_rng(0)
    mdp = FiniteMDP(rng.dirichlet(np.ones(states), (states, actions)), np.full(states, 1 / states), horizon)
    return mdp, np.eye(actions)[rng.integers(actions, size=(horizon, states))]


def finite() -> None:
    rows, figure, axes = [], *plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axis, (name, (mdp, expert)) in zip(axes, {"ledge": ledge(), "forgetful": forgetful()}.items(), strict=True):
        errors = np.zeros((len(COUNTS), len(ESTIMATES), DRAWS))
        for i, count in enumerate(COUNTS):
            for seed in range(DRAWS):
                paths = draw_paths(mdp, expert, count, seed)
                clone = np.asarray(occupancy(mdp, cloned(mdp, paths)))
                halves, folds = replay_estimate(mdp, paths), replay_estimate(mdp, paths, 10)
                for j, one in enumerate((empirical(mdp, paths), clone, halves, folds)):
                    errors[i, j, seed] = moment_error(mdp, one, expert)
            print(name, count, *errors[i].mean(1).round(4), flush=True)
            for j, estimate in enumerate(ESTIMATES):
                spread = errors[i, j].std(ddof=1) / np.sqrt(DRAWS)
                rows.append([name, count, estimate, f"{errors[i, j].mean():.6g}", f"{spread:.3g}", DRAWS, *made()])
        for j, estimate in enumerate(ESTIMATES):
            axis.plot(COUNTS, np.maximum(errors[:, j].mean(1), 1e-3), marker="o", label=estimate)
        axis.set(xscale="log", yscale="log", title=name, xlabel="demonstrations")
    axes[0].set_ylabel("error of the expert's moments")
    axes[0].legend()
    figure.savefig(FOLDER / "replay-estimation.png", dpi=110, bbox_inches="tight")
    header = ["mdp", "demonstrations", "estimate", "mean_error", "standard_error", "draws", *MADE]
    write_csv(FOLDER / "replay-estimation.csv", header, rows)


MADE = ["command", "versions", "device", "date"]


def made() -> list[str]:
    """The columns of provenance."""
    found = provenance()
    versions = " ".join(f"{name}={version}" for name, version in found["versions"].items())
    return [f"python benchmarks/{found['command']}", versions, found["device"], found["date"]]


def dataset(steps: Transition) -> Dataset:
    return Dataset(jax.tree.map(jnp.asarray, steps), jnp.asarray(len(steps.t), jnp.int32))


def pendulum() -> None:
    whole, env = us.load("Pendulum"), make("Pendulum")
    play, fresh = Player(env, None, 60.0).play_one, us.record("Pendulum", episodes=FRESH, seed=7)
    kernel = GaussianKernel.fit(jax.random.key(0), whole.spec, dataset(whole.transitions()), FEATURES, 0.5)
    wanted = mean_features(kernel, dataset(fresh.transitions()))
    rows = []
    for count in NETWORK_COUNTS:
        for number in range(3):
            own = (whole if number == 0 else whole.after(8 * number)).first(count)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = replays.estimate(us.adril(replays=EPISODES), whole.spec, own, 0.0, play)
            clone = replays.Confidence.fit(whole.spec, own.transitions(), np.ones(own.steps, bool), 0).members[0]
            played = play(clone, EPISODES, 11)
            alone = Transition(*(played.flat(np.asarray(column)) for column in played.steps))
            weighted = dataset(found.steps)._replace(estimate=replays.padded(found, len(found.weight)))
            means = [mean_features(kernel, one) for one in (dataset(own.transitions()), dataset(alone), weighted)]
            errors = [float(jnp.linalg.norm(mean - wanted)) for mean in means]
            share = float(found.weight[found.replayed].sum() / found.weight.sum())
            print(count, number, np.round(errors, 4), f"{share:.2f} replayed", played.returns.mean(), flush=True)
            for name, error in zip(("demonstrations", "clone", "replay estimation"), errors, strict=True):
                rows.append(["Pendulum", count, number, name, f"{error:.5g}", f"{share:.4f}", *made()])
    header = ["env", "demonstrations", "set", "estimate", "error", "share_of_replays", *MADE]
    write_csv(FOLDER / "replay-estimation-pendulum.csv", header, rows)


def returns() -> None:
    path = FOLDER / "replay-estimation-returns.csv"
    stored: list[list[Any]] = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    for number in (0, EPISODES):
        small: dict[str, Any] = {"sac": {"hidden": (64, 64), "gradient_steps": 32}, "rounds": 12, "features": 512}
        learner = us.adril(**small, replays=number)
        result = us.imitate(learner, "Pendulum", "Pendulum", seeds=SEEDS, episodes=RETURNS_COUNTS)
        header, rows = result_rows(result, result.evaluate("Pendulum", episodes=20))
        print(number, [row[6] for row in rows], flush=True)
        stored = [row for row in stored if row[1] != str(number)] + [[row[0], str(number), *row[1:]] for row in rows]
        write_csv(path, [header[0], "replays", *header[1:]], stored)


if __name__ == "__main__":
    part: Literal["finite", "pendulum", "returns"] = tyro.cli(
        tyro.conf.Positional[Literal["finite", "pendulum", "returns"]], description=__doc__
    )
    {"finite": finite, "pendulum": pendulum, "returns": returns}[part]()
