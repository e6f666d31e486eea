"""Planted cases: demonstrations and runs whose problem is known, on which thresholds were set."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

import understudy as us
from understudy.envs.pendulum import SwingUp
from understudy.tabular.examples import loop

Case = tuple[Any, dict[str, Any]]
"""What is diagnosed, and the other arguments."""
CASES: dict[str, tuple[tuple[str, ...], Callable[[], Case]]] = {}
"""Name → the accepted causes, and a function that makes the case."""


def case(*causes: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def add(make: Callable[[], Case]) -> Callable[[], Case]:
        CASES[make.__name__] = (causes, make)
        return make

    return add


def remade(demos: us.Demonstrations, **changes: Any) -> us.Demonstrations:
    """The same demonstrations with other arrays, and bounds from the data where actions change."""
    given = {
        "observations": demos.observations,
        "actions": demos.actions,
        "lengths": demos.lengths,
        "next_observations": demos.next_observations,
        "terminals": demos.terminals,
        "rewards": demos.rewards,
        "action_space": demos.action_space,
        "horizon": demos.horizon,
        "env": demos.env,
        **changes,
    }
    return us.Demonstrations.from_arrays(given.pop("observations"), given.pop("actions"), given.pop("lengths"), **given)


def train(demos: us.Demonstrations, env: Any = None, seeds: int = 1, **settings: Any) -> us.Result:
    learner = us.bc(**{"rounds": 20, "hidden": (64, 64), **settings})
    return us.imitate(learner, demos, env, seeds=seeds, progress=False)


def line_world(
    rng: np.random.Generator, policy: Callable[[np.ndarray], np.ndarray], episodes: int = 20, steps: int = 40
):
    """A point with two coordinates and their speeds; actions are accelerations. No environment comes with it."""
    obs, act = [], []
    for _ in range(episodes):
        s = rng.normal(size=4)
        for _ in range(steps):
            a = policy(s)
            obs.append(s)
            act.append(a)
            s = s + 0.1 * np.concatenate([s[2:], a])
    space = us.Continuous((-2.0,) * 2, (2.0,) * 2)
    return us.Demonstrations.from_arrays(np.array(obs), np.array(act), [steps] * episodes, action_space=space)


def steer(s: np.ndarray) -> np.ndarray:
    return np.tanh(-2 * s[:2] - 2 * s[2:])


def rows(demos: us.Demonstrations, episodes: list[int]) -> np.ndarray:
    ends = np.cumsum(demos.lengths)
    return np.concatenate([np.arange(ends[e] - demos.lengths[e], ends[e]) for e in episodes])


# Demonstrations alone


@case("none")
def pendulum_demonstrations() -> Case:
    return us.load("Pendulum"), {}


@case("none")
def cartpole_demonstrations() -> Case:
    return us.load("CartPole-v1", episodes=15), {}


@case("none")
def line_world_without_environment() -> Case:
    return line_world(np.random.default_rng(0), steer), {}


@case("none")
def line_world_with_noise() -> Case:
    rng = np.random.default_rng(1)
    return line_world(rng, lambda s: steer(s) + 0.05 * rng.normal(size=2)), {}


@case("ambiguous-expert", "hidden-state")
def forest_demonstrations() -> Case:
    return us.load("Forest"), {}


@case("ambiguous-expert", "hidden-state")
def line_world_left_or_right() -> Case:
    rng = np.random.default_rng(2)
    return line_world(rng, lambda s: np.array([rng.choice([-1.0, 1.0]), steer(s)[1]])), {}


@case("hidden-state", "ambiguous-expert")
def line_world_without_speeds() -> Case:
    demos = line_world(np.random.default_rng(3), lambda s: np.tanh(-s[:2] - 6 * s[2:]), 30)
    return remade(demos, observations=demos.observations[:, :2], next_observations=None), {}


@case("repeated-episodes")
def pendulum_episodes_twice() -> Case:
    demos = us.load("Pendulum", episodes=8)
    index = rows(demos, [*range(8), *range(8)])
    return (
        remade(
            demos,
            observations=demos.observations[index],
            actions=demos.actions[index],
            lengths=[200] * 16,
            next_observations=None,
            terminals=None,
            rewards=None,
        ),
        {},
    )


@case("leaked-action")
def line_world_with_the_action_in_view() -> Case:
    demos = line_world(np.random.default_rng(4), steer)
    seen = np.concatenate([demos.observations, 3 * demos.actions[:, :1] + 1], axis=1)
    return remade(demos, observations=seen, next_observations=None), {}


@case("leaked-action")
def cartpole_with_the_action_in_view() -> Case:
    demos = us.load("CartPole-v1", episodes=10)
    seen = np.concatenate([demos.observations, demos.actions[:, None]], axis=1)
    return remade(demos, observations=seen, next_observations=None, env=None), {}


@case("constant-observations")
def pendulum_with_a_dead_sensor() -> Case:
    demos = us.load("Pendulum", episodes=15)
    seen = demos.observations.copy()
    seen[:, 2] = 0.0
    return remade(demos, observations=seen, next_observations=None), {"env": "Pendulum"}


@case("constant-observations")
def line_world_with_dead_sensors() -> Case:
    demos = line_world(np.random.default_rng(5), steer)
    return remade(demos, observations=np.pad(demos.observations, ((0, 0), (0, 2))), next_observations=None), {}


@case("wrong-control-rate")
def line_world_with_held_actions() -> Case:
    rng, memory = np.random.default_rng(6), {"a": np.zeros(2), "k": 0}

    def held(s: np.ndarray) -> np.ndarray:
        if memory["k"] % 4 == 0:
            memory["a"] = steer(s)
        memory["k"] += 1
        return memory["a"]

    return line_world(rng, held), {}


@case("wrong-control-rate")
def pendulum_every_third_step() -> Case:
    demos = us.load("Pendulum")
    index = np.concatenate([rows(demos, [e])[::3] for e in range(demos.episodes)])
    return (
        remade(
            demos,
            observations=demos.observations[index],
            actions=demos.actions[index],
            lengths=[67] * demos.episodes,
            next_observations=None,
            terminals=None,
            rewards=None,
        ),
        {"env": "Pendulum"},
    )


@case("wrong-action-scale")
def pendulum_actions_in_half_ranges() -> Case:
    demos = us.load("Pendulum")
    return remade(demos, actions=demos.actions / 2), {"env": "Pendulum"}


@case("wrong-action-scale")
def pendulum_actions_too_large() -> Case:
    demos = us.load("Pendulum")
    return remade(demos, actions=demos.actions * 3, action_space=None, env=None), {"env": "Pendulum"}


@case("swapped-columns")
def pendulum_swapped() -> Case:
    demos = us.load("Pendulum")
    order = [1, 0, 2]
    return (
        remade(demos, observations=demos.observations[:, order], next_observations=demos.next_observations[:, order]),
        {"env": "Pendulum"},
    )


@case("swapped-columns")
def cartpole_swapped() -> Case:
    demos = us.load("CartPole-v1", episodes=10)
    order = [0, 3, 2, 1]
    return (
        remade(demos, observations=demos.observations[:, order], next_observations=demos.next_observations[:, order]),
        {"env": "CartPole-v1"},
    )


@case("time-limit-as-terminal")
def pendulum_marked_terminal() -> Case:
    demos = us.load("Pendulum", episodes=10)
    terminals = np.zeros(demos.steps, bool)
    terminals[np.cumsum(demos.lengths) - 1] = True
    return remade(demos, terminals=terminals), {"env": "Pendulum"}


@case("missing-terminals")
def lander_without_terminals() -> Case:
    demos = us.load("LunarLander-v3")
    return remade(demos, terminals=None, env=None), {}


@case("poor-expert")
def pendulum_with_noise() -> Case:
    return us.record("Pendulum", SwingUp(), 15, noise=1.5, progress=False), {"env": "Pendulum"}


@case("several-experts")
def line_world_of_two() -> Case:
    rng, memory = np.random.default_rng(7), {"k": 0}

    def one_of_two(s: np.ndarray) -> np.ndarray:
        memory["k"] += 1
        centre = 1.0 if (memory["k"] - 1) // 40 % 2 else -1.0
        return np.tanh(-2 * (s[:2] - centre) - 2 * s[2:])

    return line_world(rng, one_of_two, 24), {}


# Runs


@case("none")
def pendulum_run() -> Case:
    demos = us.load("Pendulum", episodes=20)
    return train(demos, "Pendulum", 2), {"demonstrations": demos, "expert": "scripted"}


@case("none")
def cartpole_run() -> Case:
    demos = us.load("CartPole-v1", episodes=10)
    return train(demos, "CartPole-v1"), {"demonstrations": demos}


@case("none")
def loop_run() -> Case:
    env = us.Finite.of(loop(20))
    demos = us.record(env, env.expert(), 20, progress=False)
    return train(demos, env, rounds=5), {"demonstrations": demos, "expert": env.expert()}


@case("too-few-demonstrations")
def pendulum_two_demonstrations() -> Case:
    demos = us.load("Pendulum", episodes=2)
    return train(demos, "Pendulum"), {"demonstrations": demos, "expert": "scripted"}


@case("under-trained")
def pendulum_one_round() -> Case:
    demos = us.load("Pendulum", episodes=20)
    return train(demos, "Pendulum", rounds=4, gradient_steps=10), {"demonstrations": demos, "expert": "scripted"}


@case("ambiguous-expert", "hidden-state")
def forest_run() -> Case:
    demos = us.load("Forest")
    return train(demos, "Forest"), {"demonstrations": demos, "expert": "scripted"}


@case("overfitting")
def pendulum_noise_by_heart() -> Case:
    demos = us.record("Pendulum", SwingUp(), 5, noise=0.6, progress=False)
    learner = {"rounds": 30, "hidden": (256, 256), "weight_decay": 0.0, "lr": 1e-3, "ema_decay": 0.0}
    return train(demos, "Pendulum", **learner), {"demonstrations": demos}


@case("diverged-critic")
def valuedice_diverges() -> Case:
    demos = us.load("Pendulum", episodes=5)
    learner = us.valuedice(rounds=6, critic_lr=30.0, gradient_steps=50, hidden=(32, 32))
    return us.imitate(learner, demos, "Pendulum", progress=False), {"demonstrations": demos}


@case("unstable-seeds")
def pendulum_seeds() -> Case:
    """One seed of four is replaced by an untrained policy: what a collapsed seed looks like."""
    demos = us.load("Pendulum", episodes=20)
    good, bad = train(demos, "Pendulum", 4), train(demos, "Pendulum", 4, rounds=1, gradient_steps=1)
    mixed = [bad.policies[i] if i == 1 else good.policies[i] for i in range(4)]
    runs = [bad.runs[i] if i == 1 else good.runs[i] for i in range(4)]
    return replace(good, policies=mixed, runs=runs), {"demonstrations": demos}


class Tightrope(gymnasium.Env[np.ndarray, np.ndarray]):
    """An unstable offset x, which the expert keeps so close to 0 that its demonstrations show no way back."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.y, self.steps = 0.001 * self.np_random.normal(), self.np_random.uniform(0, 6.28), 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x = float(np.clip(1.03 * self.x + 0.1 * (action[0] - np.sin(2 * self.y)), -5, 5))
        self.y, self.steps = self.y + 0.1, self.steps + 1
        return self._seen(), float(abs(self.x) < 0.5), False, self.steps >= 200, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.x, np.sin(self.y), np.cos(self.y)], np.float32)


def balance(obs: np.ndarray) -> np.ndarray:
    wave = 2 * obs[..., 1:2] * obs[..., 2:3]  # sin 2y
    return np.asarray(np.clip(wave - 8 * obs[..., :1], -2, 2), np.float32)


@case("compounding-errors")
def tightrope_with_an_expert() -> Case:
    env = us.make(Tightrope, horizon=200)
    demos = us.record(env, balance, 15, progress=False, workers=0)
    return train(demos, env), {"env": env, "expert": balance, "demonstrations": demos}


@case("compounding-errors")
def tightrope_without_an_expert() -> Case:
    env = us.make(Tightrope, horizon=200)
    demos = us.record(env, balance, 15, progress=False, workers=0)
    return train(demos, env), {"env": env, "demonstrations": demos}
