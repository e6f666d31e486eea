"""Planted cases: demonstrations and runs whose cause of trouble is known by construction, and healthy runs.

Each function below `@case` returns one case: its name, its cause, the arguments of `us.diagnose`, and measured facts. A
builder asserts its facts, so a case that does not show its cause does not build. `shortfall` measures a policy: 0 is as
good as the expert, 1 is as bad as doing nothing (the middle of the action range, or random discrete actions).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypedDict

import jax
import numpy as np

import understudy as us
from hidden_envs import (
    Act,
    Cart,
    Fork,
    Orbit,
    Reach,
    Ridge,
    Thermostat,
    balance_on_ridge,
    balance_pole,
    circle,
    heat,
    pass_rock,
    pump_car,
    reach,
    stop_cart,
)
from understudy.game import Algorithm
from understudy.train.results import Result

LARGE, SMALL = 0.25, 0.05
"""Shortfalls: at least this in a case with a gap, at most this in a healthy run."""
EPISODES = 50
"""Fresh episodes of a measurement."""
CAUSES = (
    *("too-few-demonstrations", "ambiguous-expert", "hidden-state", "compounding-errors", "wrong-action-scale"),
    *("swapped-columns", "time-limit-as-terminal", "missing-terminals", "poor-expert", "diverged-critic"),
    *("under-trained", "overfitting", "constant-observations", "repeated-episodes", "leaked-action"),
    *("wrong-control-rate", "several-experts", "unstable-seeds", "none"),
)


class Case(TypedDict):
    name: str
    cause: str
    subject: Result | us.Demonstrations
    """The first argument of `us.diagnose`."""
    arguments: dict[str, Any]
    """Its keyword arguments: env, expert, demonstrations."""
    facts: dict[str, float]
    """What the builder measured."""


Builder = Callable[[], Case]
CASES: dict[str, Builder] = {}
"""Name → builder, in order."""


def case(cause: str) -> Callable[[Callable[[], dict[str, Any]]], Builder]:
    """Register the builder of a case. It returns `subject`, `facts` and keyword arguments of `us.diagnose`."""

    def register(build: Callable[[], dict[str, Any]]) -> Builder:
        name = build.__name__.replace("_", "-")

        def built() -> Case:
            made = build()
            subject, facts = made.pop("subject"), made.pop("facts")
            return Case(name=name, cause=cause, subject=subject, arguments=made, facts=facts)

        assert cause in CAUSES
        CASES[name] = built
        return built

    return register


def record(env: Any, expert: Any, episodes: int, seed: int = 0, **options: Any) -> us.Demonstrations:
    return us.record(env, expert, episodes, seed, workers=0, progress=False, **options)


def clone(demos: us.Demonstrations, env: Any, seeds: int = 1, holdout: float = 0.05, **settings: Any) -> Result:
    """Behavioral cloning with small settings."""
    chosen = {"rounds": 20, "gradient_steps": 300, "hidden": (64, 64), "lr": 1e-3, "weight_decay": 1e-3} | settings
    return train(us.bc(**chosen), demos, env, seeds=seeds, holdout=holdout)


def train(algorithm: Algorithm, demos: us.Demonstrations, env: Any, **options: Any) -> Result:
    return us.imitate(algorithm, demos, env, progress=False, workers=0, **options)


def returns(result: Result, env: Any) -> np.ndarray:
    """Mean return of each policy in fresh episodes."""
    return us.evaluate(result.policies, env, EPISODES, seed=77, workers=0, progress=False).returns.mean(axis=1)


def mean_return(env: Any, expert: Any) -> float:
    found = record(env, expert, EPISODES, seed=78).returns
    assert found is not None
    return float(found.mean())


def idle(env: Any, seed: int = 0) -> Act:
    """A policy that does nothing: the middle of the action range, or random discrete actions."""
    space, random = us.make(env).spec.action, np.random.default_rng(seed)
    if isinstance(space, us.Continuous):
        middle = (np.array(space.low) + np.array(space.high)) / 2
        return lambda obs: np.tile(middle, (len(obs), 1))
    assert isinstance(space, us.Discrete)
    return lambda obs: random.integers(space.n, size=len(obs))


def shortfalls(result: Result, env: Any, expert: Any) -> np.ndarray:
    """The shortfall of each policy. `expert` acts from the policy's starting states, or is its mean return."""
    given = None if isinstance(expert, float) else expert
    found = us.evaluate(result.policies, env, EPISODES, seed=77, expert=given, workers=0, progress=False)
    known = expert if found.expert_returns is None else found.expert_returns.mean(axis=1)
    return (known - found.returns.mean(axis=1)) / (known - mean_return(env, idle(env)))


def shortfall(result: Result, env: Any, expert: Any) -> float:
    """The shortfall of the selected policy."""
    return float(shortfalls(result, env, expert)[result.selected])


def large(value: float) -> float:
    assert value >= LARGE, f"the shortfall is {value:.3f}, not large"
    return value


def small(value: float) -> float:
    assert value <= SMALL, f"the shortfall is {value:.3f}, not small"
    return value


def joined(parts: list[us.Demonstrations]) -> us.Demonstrations:
    """The episodes of several demonstrations, one after the other."""

    def together(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    assert all(part.other_next is None for part in parts)
    names = ("observations", "recorded_actions", "lengths", "last_observations", "terminals", "rewards")
    return replace(parts[0], **{name: together(name) for name in names})


def with_observations(demos: us.Demonstrations, change: Callable[[np.ndarray], np.ndarray]) -> us.Demonstrations:
    """The same episodes with changed observations, the last ones included."""
    assert demos.last_observations is not None
    assert demos.other_next is None
    changed = change(demos.last_observations)
    return replace(demos, observations=change(demos.observations), last_observations=changed)


# Too little data, or data that say less than their number


@case("too-few-demonstrations")
def reach_two_episodes() -> dict[str, Any]:
    env, expert = Reach(), reach()
    demos = record(env, expert, 80)
    few = clone(demos.first(2), env)
    facts = {"shortfall": large(shortfall(few, env, expert))}
    facts["shortfall with 80 episodes"] = small(shortfall(clone(demos, env), env, expert))
    return {"subject": few, "env": env, "expert": expert, "demonstrations": demos.first(2), "facts": facts}


@case("repeated-episodes")
def reach_two_episodes_repeated() -> dict[str, Any]:
    env, expert = Reach(), reach()
    demos = joined([record(env, expert, 2)] * 15)
    result = clone(demos, env)
    starts = demos.observations[np.cumsum(demos.lengths) - demos.lengths]
    facts = {"shortfall": large(shortfall(result, env, expert)), "distinct": float(len(np.unique(starts, axis=0)))}
    assert demos.episodes == 30
    assert facts["distinct"] == 2
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


# The expert


@case("ambiguous-expert")
def fork_either_side() -> dict[str, Any]:
    env = Fork()
    demos = record(env, pass_rock(1), 40)
    result = clone(demos, env)
    ends = demos.observations[np.cumsum(demos.lengths) - 17, 1]  # beside the rock
    facts = {"shortfall": large(shortfall(result, env, pass_rock(2))), "left": float((ends < 0).mean())}
    assert 0.25 < facts["left"] < 0.75
    return {"subject": result, "env": env, "expert": pass_rock(3), "demonstrations": demos, "facts": facts}


@case("ambiguous-expert")
def another_forest() -> dict[str, Any]:
    env = us.Forest.plant(jax.random.key(11))
    demos = record(env, "scripted", 30)
    result = clone(demos, env)
    expert = mean_return(env, "scripted")
    facts = {"expert": expert, "learner": float(returns(result, env)[0])}
    assert facts["learner"] < 0.75 * expert
    return {"subject": result, "env": env, "expert": "scripted", "demonstrations": demos, "facts": facts}


@case("several-experts")
def orbit_both_directions() -> dict[str, Any]:
    env = Orbit()
    demos = joined([record(env, circle(direction), 1, seed) for seed in range(15) for direction in (1.0, -1.0)])
    result = clone(demos, env)
    one = clone(record(env, circle(1.0), 30), env)
    facts = {"shortfall": large(shortfall(result, env, circle(1.0)))}
    facts["shortfall with one expert"] = small(shortfall(one, env, circle(1.0)))
    return {"subject": result, "env": env, "demonstrations": demos, "facts": facts}


@case("hidden-state")
def cart_without_velocity() -> dict[str, Any]:
    seen, env = Cart(), Cart(hides_velocity=True)
    full = record(seen, stop_cart, 40)
    demos = with_observations(full, lambda obs: obs[:, :1].copy())
    result = clone(demos, env)
    facts = {"shortfall": large(shortfall(result, env, mean_return(seen, stop_cart)))}
    facts["shortfall with the velocity"] = small(shortfall(clone(full, seen), seen, stop_cart))
    return {"subject": result, "env": env, "demonstrations": demos, "facts": facts}


@case("poor-expert")
def pole_poor_expert() -> dict[str, Any]:
    demos = record("CartPole-v1", balance_pole, 60, noise=0.9)
    result = clone(demos, "CartPole-v1")
    assert demos.returns is not None
    facts = {"expert": float(demos.returns.mean()), "random": mean_return("CartPole-v1", idle("CartPole-v1"))}
    facts |= {"good expert": mean_return("CartPole-v1", balance_pole)}
    facts["learner"] = float(returns(result, "CartPole-v1")[0])
    assert facts["expert"] < 2 * facts["random"] < facts["good expert"] / 4
    return {"subject": result, "env": "CartPole-v1", "demonstrations": demos, "facts": facts}


@case("poor-expert")
def reach_opposite_place() -> dict[str, Any]:
    env, wrong = Reach(), reach(goal=-1.0)
    demos = record(env, wrong, 40)
    result = clone(demos, env)
    facts = {"expert": mean_return(env, wrong), "idle": mean_return(env, idle(env))}
    facts |= {"shortfall": small(shortfall(result, env, wrong)), "good expert": mean_return(env, reach())}
    assert facts["expert"] < facts["idle"] < facts["good expert"]
    assert facts["shortfall"] > -SMALL  # it does as badly as its expert
    return {"subject": result, "env": env, "expert": wrong, "demonstrations": demos, "facts": facts}


# One mistake leads to others


@case("compounding-errors")
def ridge_fatal() -> dict[str, Any]:
    return _ridge(Ridge())


@case("compounding-errors")
def ridge_recoverable() -> dict[str, Any]:
    return _ridge(Ridge(growth=1.1, fatal=False))


def _ridge(env: Ridge) -> dict[str, Any]:
    """More demonstrations of the same path do not help. `healthy_ridge_dagger` shows what does."""
    demos = record(env, balance_on_ridge, 60)
    result = clone(demos.first(30), env)
    errors = result.policy(demos.observations) - balance_on_ridge(demos.observations)
    facts = {"shortfall": large(shortfall(result, env, balance_on_ridge)), "error": float(np.abs(errors).mean())}
    facts["shortfall with 60 episodes"] = large(shortfall(clone(demos, env), env, balance_on_ridge))
    assert facts["error"] < 0.05
    demos = demos.first(30)
    return {"subject": result, "env": env, "expert": balance_on_ridge, "demonstrations": demos, "facts": facts}


# Demonstrations that do not fit the environment


@case("wrong-action-scale")
def reach_actions_divided_by_18() -> dict[str, Any]:
    env, expert = Reach(), reach()
    right = record(env, expert, 40)
    demos = replace(right, recorded_actions=right.actions / np.float32(18))
    result = clone(demos, env)
    facts = {"shortfall": large(shortfall(result, env, expert))}
    facts["shortfall with the right scale"] = small(shortfall(clone(right, env), env, expert))
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


@case("wrong-action-scale")
def mountain_car_tenth_of_action() -> dict[str, Any]:
    right = record("MountainCarContinuous-v0", pump_car, 30)
    demos = replace(right, recorded_actions=right.actions * np.float32(0.1))
    result = clone(demos, "MountainCarContinuous-v0")
    facts = {"shortfall": large(shortfall(result, "MountainCarContinuous-v0", pump_car))}
    return {"subject": result, "env": "MountainCarContinuous-v0", "demonstrations": demos, "facts": facts}


@case("swapped-columns")
def thermostat_inside_outside() -> dict[str, Any]:
    env = Thermostat()
    demos = with_observations(record(env, heat, 40), lambda obs: obs[:, [1, 0, 2]].copy())
    result = clone(demos, env)
    facts = {"shortfall": large(shortfall(result, env, heat))}
    return {"subject": result, "env": env, "expert": heat, "demonstrations": demos, "facts": facts}


@case("swapped-columns")
def pole_angle_and_place() -> dict[str, Any]:
    right = record("CartPole-v1", balance_pole, 20)
    demos = with_observations(right, lambda obs: obs[:, [2, 3, 0, 1]].copy())
    result = clone(demos, "CartPole-v1")
    facts = {"shortfall": large(shortfall(result, "CartPole-v1", balance_pole))}
    return {"subject": result, "env": "CartPole-v1", "demonstrations": demos, "facts": facts}


@case("constant-observations")
def reach_dead_speed_sensor() -> dict[str, Any]:
    env, expert = Reach(), reach()

    def dead(obs: np.ndarray) -> np.ndarray:
        return obs * np.array([1, 1, 0, 0, 1, 1], np.float32)

    demos = with_observations(record(env, expert, 40), dead)
    result = clone(demos, env)
    facts = {"shortfall": large(shortfall(result, env, expert)), "spread": float(demos.observations[:, 2:4].std())}
    assert facts["spread"] == 0.0
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


@case("leaked-action")
def reach_previous_action_is_current() -> dict[str, Any]:
    env, expert = Reach(shows_previous=True), reach()
    right = record(env, expert, 40)
    leaked = np.concatenate([right.observations[:, :6], right.actions], axis=1)
    demos = replace(right, observations=leaked)
    result = clone(demos, env)
    facts = {"shortfall": large(shortfall(result, env, expert))}
    facts["error"] = float(np.abs(result.policy(leaked) - right.actions).mean())
    assert facts["error"] < 0.1
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


@case("wrong-control-rate")
def reach_ten_times_faster() -> dict[str, Any]:
    expert, env = reach(stiffness=80.0, damping=16.0, limit=20.0), Reach(limit=20.0, dt=0.2, horizon=30)
    fast = Reach(limit=20.0, dt=0.02, horizon=300)  # both last six seconds
    demos = record(fast, expert, 20)
    result = clone(demos, env)
    inside = np.ones(demos.steps - 1, bool)
    inside[np.cumsum(demos.lengths)[:-1] - 1] = False
    change = float(np.abs(np.diff(demos.actions, axis=0)[inside]).mean())
    facts = {"shortfall": large(shortfall(result, env, mean_return(fast, expert))), "change of an action": change}
    facts["shortfall at the right rate"] = small(shortfall(clone(demos, fast), fast, expert))
    return {"subject": result, "env": env, "demonstrations": demos, "facts": facts}


@case("time-limit-as-terminal")
def thermostat_terminal_at_the_limit() -> dict[str, Any]:
    env = Thermostat()
    right = record(env, heat, 30)
    terminals = np.zeros(right.steps, bool)
    terminals[np.cumsum(right.lengths) - 1] = True
    demos = replace(right, terminals=terminals)
    assert right.terminals is not None
    facts = {
        "real terminals": float(right.terminals.sum()),
        "episodes at the limit": float((right.lengths == 80).sum()),
    }
    assert facts == {"real terminals": 0.0, "episodes at the limit": 30.0}
    return {"subject": demos, "env": env, "expert": heat, "facts": facts}


@case("missing-terminals")
def mountain_car_without_terminals() -> dict[str, Any]:
    right = record("MountainCarContinuous-v0", pump_car, 30)
    assert right.terminals is not None
    facts = {"real terminals": float(right.terminals.sum()), "longest": float(right.lengths.max())}
    assert facts["real terminals"] == 30
    assert facts["longest"] < right.horizon
    demos = replace(right, terminals=np.zeros(right.steps, bool))
    return {"subject": demos, "env": "MountainCarContinuous-v0", "facts": facts}


# Optimisation


@case("under-trained")
def reach_forty_gradient_steps() -> dict[str, Any]:
    env, expert = Reach(), reach()
    demos = record(env, expert, 60)
    result = clone(demos, env, rounds=10, gradient_steps=4)
    longer = clone(demos, env)
    facts = {"shortfall": large(shortfall(result, env, expert)), "loss": float(result.metrics["loss"][0, -1])}
    facts["shortfall of longer training"] = small(shortfall(longer, env, expert))
    facts["loss of longer training"] = float(longer.metrics["loss"][0, -1])
    assert facts["loss"] > 5 * facts["loss of longer training"]
    assert facts["loss"] < 0.9 * float(result.metrics["loss"][0, 0])
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


@case("overfitting")
def reach_memorised_noise() -> dict[str, Any]:
    env, expert = Reach(distractors=20), reach()
    demos = record(env, expert, 12, noise=1.5)
    options: dict[str, Any] = {"holdout": 0.25, "hidden": (128, 128), "weight_decay": 0.0, "ema_decay": 0.0}
    result = clone(demos, env, **options)
    early = clone(demos, env, **options | {"rounds": 1, "gradient_steps": 80})
    fresh = record(env, expert, EPISODES, seed=5, noise=1.5)

    def error(policy: Any, data: us.Demonstrations) -> float:
        return float(((policy(data.observations) - data.actions) ** 2).mean())

    facts = {"shortfall": shortfall(result, env, expert), "early": shortfall(early, env, expert)}
    facts |= {"fresh error": error(result.policy, fresh), "early fresh error": error(early.policy, fresh)}
    facts["last loss"] = float(result.metrics["loss"][0, -1])
    assert facts["early fresh error"] < 0.8 * facts["fresh error"]
    assert facts["shortfall"] > 0.15
    assert facts["early"] < 0.75 * facts["shortfall"]
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


@case("diverged-critic")
def cart_exploding_critic() -> dict[str, Any]:
    env = Cart()
    demos = record(env, stop_cart, 20)
    algorithm = us.sqil(rounds=60, round_steps=256, frequency=64, random_steps=64, sac={"lr": 1.0, "hidden": (32, 32)})
    result = train(algorithm, demos, env)  # stops in its first round
    facts = {"shortfall": large(shortfall(result, env, stop_cart))}
    facts["largest critic loss"] = float(np.nanmax(result.metrics["critic_loss"]))
    assert facts["largest critic loss"] > 1e6
    return {"subject": result, "env": env, "expert": stop_cart, "demonstrations": demos, "facts": facts}


@case("unstable-seeds")
def cart_narrow_network() -> dict[str, Any]:
    env = Cart()
    demos = record(env, stop_cart, 40)
    result = clone(demos, env, seeds=8, hidden=(2, 2), lr=3e-2)
    found = shortfalls(result, env, stop_cart)
    facts = {"lowest": small(float(found.min())), "highest": large(float(found.max()))}
    facts["seeds with a large gap"] = float((found > LARGE).sum())
    return {"subject": result, "env": env, "expert": stop_cart, "demonstrations": demos, "facts": facts}


# Healthy runs


def _healthy(env: Any, expert: Act, episodes: int, **settings: Any) -> dict[str, Any]:
    demos = record(env, expert, episodes, seed=20)
    result = clone(demos, env, seeds=2, **settings)
    worst = float(shortfalls(result, env, expert).max())
    facts = {"shortfall": small(worst)}
    return {"subject": result, "env": env, "expert": expert, "demonstrations": demos, "facts": facts}


@case("none")
def healthy_reach() -> dict[str, Any]:
    return _healthy(Reach(), reach(), 60)


@case("none")
def healthy_thermostat() -> dict[str, Any]:
    return _healthy(Thermostat(), heat, 60)


@case("none")
def healthy_orbit() -> dict[str, Any]:
    return _healthy(Orbit(), circle(-1.0), 30)


@case("none")
def healthy_mountain_car() -> dict[str, Any]:
    return _healthy("MountainCarContinuous-v0", pump_car, 40)


@case("none")
def healthy_pole() -> dict[str, Any]:
    return _healthy("CartPole-v1", balance_pole, 25)


@case("none")
def healthy_ridge_dagger() -> dict[str, Any]:
    """The ridge of `ridge_fatal`, with an algorithm that suits it."""
    env = Ridge()
    demos = record(env, balance_on_ridge, 20)
    algorithm = us.dagger(rounds=6, gradient_steps=600, episodes_per_round=8, hidden=(64, 64), lr=1e-3)
    result = train(algorithm, demos, env, expert=balance_on_ridge)
    facts = {"shortfall": small(shortfall(result, env, balance_on_ridge))}
    return {"subject": result, "env": env, "expert": balance_on_ridge, "demonstrations": demos, "facts": facts}
