"""Planted cases that the diagnosis was not developed on: a third set of tasks, experts and mishaps.

They are written as those of benchmarks/hidden_cases.py, whose measures they use, without a look at the diagnosis. The
docstring of a case says what shows its cause. `python benchmarks/planted.py --set fresh` diagnoses them.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import hidden_cases
import understudy as us
from fresh_envs import (
    KILN,
    Bicycle,
    Crane,
    Cruise,
    Drone,
    Greenhouse,
    Merge,
    Sorter,
    Warehouse,
    burn,
    fetch,
    follow,
    grow,
    hover,
    lift,
    merge,
    ride,
    sort,
)
from hidden_cases import (
    LARGE,
    Builder,
    idle,
    joined,
    large,
    mean_return,
    record,
    returns,
    shortfall,
    shortfalls,
    small,
    train,
    with_observations,
)
from understudy.train.results import Result
from unseen_cases import at_ends, chosen_episodes, compared, quick

Built = dict[str, Any]
"""What a builder returns: `subject`, `facts` and keyword arguments of `us.diagnose`."""
CASES: dict[str, Builder] = {}
"""Name → builder, in order."""
case = partial(hidden_cases.case, cases=CASES)


def planted(env: Any, act: Any, demos: us.Demonstrations, broken: Result, sound: Result, **given: Any) -> Built:
    """A run with a defect, which falls short of the expert `act`, and one without it, which does not."""
    facts = compared(env, act, broken, sound)
    return {"subject": broken, "env": env, "demonstrations": demos, "facts": facts, **given}


def error(policy: Any, demos: us.Demonstrations) -> float:
    """Mean squared error of a policy's actions in the demonstrated states, or the share of wrong discrete actions."""
    actions = policy(demos.observations)
    wrong = actions != demos.actions if isinstance(demos.action_space, us.Discrete) else (actions - demos.actions) ** 2
    return float(np.mean(wrong))


# Too little data, or data that say less than their number


@case("too-few-demonstrations")
def drone_two_flights() -> Built:
    """Forty flights suffice."""
    demos = record(Drone(), hover(), 40)
    few = demos.first(2)
    return planted(Drone(), hover(), few, quick(few, Drone()), quick(demos, Drone()), expert=hover())


@case("too-few-demonstrations")
def sorter_five_shifts_alone() -> Built:
    """Demonstrations alone: a clone errs on other parts, and less so with more parts."""
    demos, fresh = record(Sorter(), sort(), 150), record(Sorter(), sort(), 50, seed=9)
    facts = {f"error with {n}": error(quick(demos.first(n), Sorter()).policy, fresh) for n in (2, 5, 150)}
    assert facts["error with 150"] < 0.06
    assert facts["error with 2"] > facts["error with 5"] > 0.15
    return {"subject": demos.first(5), "facts": facts}


@case("repeated-episodes")
def warehouse_recorder_resets_the_seed() -> Built:
    """The recorder starts every session of three episodes with the same seed: 36 episodes, 3 different ones."""
    env, expert = Warehouse(), fetch()
    demos = joined([record(env, expert, 3, seed=3)] * 12)
    built = planted(env, expert, demos, quick(demos, env), quick(record(env, expert, 120), env), expert=expert)
    starts = demos.observations[np.cumsum(demos.lengths) - demos.lengths]
    built["facts"]["distinct"] = float(len(np.unique(starts, axis=0)))
    assert built["facts"]["distinct"] == 3
    return built


@case("repeated-episodes")
def cruise_exported_three_times() -> Built:
    """Demonstrations alone: the same eight drives with all digits, with three and with two."""
    right = record(Cruise(), follow(), 8)
    exports = [with_observations(right, lambda obs, to=digits: obs.round(to)) for digits in (7, 3, 2)]
    demos = joined([replace(part, recorded_actions=np.round(part.actions, 3)) for part in exports])
    apart = np.abs(demos.observations[: right.steps] - demos.observations[-right.steps :]).max()
    others = np.abs(demos.observations[:100] - demos.observations[100:200]).max()
    facts = {"episodes": float(demos.episodes), "copies apart": float(apart), "others apart": float(others)}
    assert facts["copies apart"] < 0.01 < 1.0 < facts["others apart"]
    return {"subject": demos, "facts": facts}


# The expert


@case("ambiguous-expert")
def merge_before_or_behind() -> Built:
    """From the same start, the driver takes either side in half of the episodes. The mean waits and collides."""
    demos = record(Merge(), merge(1), 80)
    sound = quick(record(Merge(), merge(1, before=1.0), 80), Merge())
    built = planted(Merge(), merge(2), demos, quick(demos, Merge()), sound, expert=merge(3))
    built["facts"]["before"] = float((demos.actions[::14] > 0).mean())
    assert 0.35 < built["facts"]["before"] < 0.65
    return built


@case("several-experts")
def greenhouse_two_gardeners() -> Built:
    """One likes 20 degrees, as wanted, the other one 28. Each is consistent, and whole episodes are of one of them."""
    env = Greenhouse()
    demos = joined([record(env, grow(wanted), 5, seed) for seed in range(5) for wanted in (20.0, 28.0)])
    built = planted(env, grow(), demos, quick(demos, env), quick(record(env, grow(), 50), env))
    assert demos.returns is not None
    means = demos.returns.reshape(5, 2, 5).mean(axis=(0, 2))
    built["facts"] |= {"return of the first": float(means[0]), "of the second": float(means[1])}
    return built


@case("several-experts")
def cruise_two_headways() -> Built:
    """Demonstrations alone: one driver keeps 0.8 seconds of distance, the other one 2.4, in the same situations."""
    env = Cruise()
    parts = [record(env, follow(headway), 20, seed) for seed, headway in enumerate((0.8, 2.4))]
    demos = chosen_episodes(joined(parts), np.random.default_rng(0).permutation(40).tolist())
    facts = {"error of one driver's clone": error(quick(parts[0], env).policy, parts[0])}
    facts["error of both drivers' clone"] = error(quick(demos, env).policy, demos)
    assert facts["error of both drivers' clone"] > 20 * facts["error of one driver's clone"]
    return {"subject": demos, "facts": facts}


def hidden(seen: Any, env: Any, expert: Any, full: us.Demonstrations, columns: list[int]) -> Built:
    """A run that sees these columns alone, as `env` shows them. A run that sees all of them learns the task."""
    demos = with_observations(full, lambda obs: obs[:, columns].copy())
    result = quick(demos, env)
    facts = {"shortfall": large(shortfall(result, env, mean_return(seen, expert)))}
    facts["shortfall with all columns"] = small(shortfall(quick(full, seen), seen, expert))
    return {"subject": result, "env": env, "demonstrations": demos, "facts": facts}


@case("hidden-state")
def crane_without_swing() -> Built:
    """The policy sees trolley and goal. Two steps in the same place differ by the swing, which the expert damps."""
    seen, env, expert = Crane(), Crane(shows=(0, 1, 4)), lift(damping=8.0)
    return hidden(seen, env, expert, record(seen, expert, 60), [0, 1, 4])


@case("hidden-state")
def warehouse_load_not_recorded() -> Built:
    """Where the robot goes depends on the box it may carry: in the same place it goes both ways."""
    seen, env, expert = Warehouse(), Warehouse(hides_load=True), fetch()
    return hidden(seen, env, expert, record(seen, expert, 120), [0, 1, 2, 3])


@case("poor-expert")
def drone_beginner() -> Built:
    """He corrects the tilt the wrong way and crashes. The clone is as bad, and doing nothing is no worse."""
    beginner = hover(balance=-0.5)
    demos = record(Drone(), beginner, 40)
    result = quick(demos, Drone())
    facts = {"expert": mean_return(Drone(), beginner), "learner": float(returns(result, Drone())[0])}
    facts |= {"idle": mean_return(Drone(), idle(Drone())), "good expert": mean_return(Drone(), hover())}
    assert abs(facts["learner"] - facts["expert"]) < 0.05
    assert facts["expert"] < facts["idle"] + 0.03 * facts["good expert"]
    return {"subject": result, "env": Drone(), "expert": beginner, "demonstrations": demos, "facts": facts}


@case("poor-expert")
def warehouse_lost_picker() -> Built:
    """Demonstrations alone: 19 of 20 actions are random, and the return is that of random actions."""
    demos = record(Warehouse(), fetch(), 40, noise=0.95)
    assert demos.returns is not None
    facts = {"expert": float(demos.returns.mean()), "random": mean_return(Warehouse(), idle(Warehouse()))}
    facts["good expert"] = mean_return(Warehouse(), fetch())
    assert facts["expert"] < facts["random"] + 3.0 < facts["good expert"] - 30.0
    return {"subject": demos, "env": Warehouse(), "facts": facts}


# One mistake leads to others


@case("compounding-errors")
def bicycle_always_upright() -> Built:
    """Nobody shows how to come back from a lean: errors are small where the rider was, more riding does not help."""
    env = Bicycle()
    demos = record(env, ride, 80)
    few = demos.first(40)
    result = quick(few, env)
    facts = {"shortfall": large(shortfall(result, env, ride)), "error": error(result.policy, few)}
    facts["shortfall with 80 episodes"] = large(shortfall(quick(demos, env), env, ride))
    assert facts["error"] < 0.01
    return {"subject": result, "env": env, "expert": ride, "demonstrations": few, "facts": facts}


# Demonstrations that do not fit the environment


@case("wrong-action-scale")
def cruise_pedal_in_g() -> Built:
    """The logger wrote g, the environment takes m/s². A model of the environment fits 9.81 times the actions."""
    env = Cruise()
    right = record(env, follow(), 40)
    demos = replace(right, recorded_actions=right.actions / np.float32(9.81))
    return planted(env, follow(), demos, quick(demos, env), quick(right, env), expert=follow())


@case("wrong-action-scale")
def greenhouse_heater_as_share() -> Built:
    """The heater from 0 to 1 as the window is, in place of kW. A model of the environment fits 20 times its values."""
    env = Greenhouse()
    right = record(env, grow(), 50)
    demos = replace(right, recorded_actions=right.actions / np.array([20.0, 1.0], np.float32))
    return planted(env, grow(), demos, quick(demos, env), quick(right, env))


@case("swapped-columns")
def drone_motors_swapped() -> Built:
    """The columns of the actions. A model of the environment fits the other order."""
    right = record(Drone(), hover(), 40)
    demos = replace(right, recorded_actions=right.actions[:, ::-1].copy())
    return planted(Drone(), hover(), demos, quick(demos, Drone()), quick(right, Drone()), expert=hover())


@case("swapped-columns")
def greenhouse_other_logger() -> Built:
    """Demonstrations alone, with the environment: the other logger writes what is outside before what is inside."""
    env = Greenhouse()
    right = record(env, grow(), 50)
    demos = with_observations(right, lambda obs: obs[:, [2, 3, 0, 1]].copy())
    facts = {"shortfall of a clone": large(shortfall(quick(demos, env), env, grow()))}
    facts["without the defect"] = small(shortfall(quick(right, env), env, grow()))
    return {"subject": demos, "env": env, "facts": facts}


@case("constant-observations")
def drone_stuck_tilt_sensor() -> Built:
    """The recorded tilt is 0.02 throughout. In the environment it varies."""
    right = record(Drone(), hover(), 40)
    others, stuck = np.array([1, 1, 1, 1, 0, 1], np.float32), np.array([0, 0, 0, 0, 0.02, 0], np.float32)
    demos = with_observations(right, lambda obs: obs * others + stuck)
    built = planted(Drone(), hover(), demos, quick(demos, Drone()), quick(right, Drone()), expert=hover())
    built["facts"]["spread"] = float(np.ptp(demos.observations[:, 4]))
    assert built["facts"]["spread"] == 0.0
    return built


@case("constant-observations")
def cruise_radar_lost_the_lorry() -> Built:
    """Demonstrations alone: the lorry's speed is recorded as 0. In the environment it varies."""
    right = record(Cruise(), follow(), 30)
    demos = with_observations(right, lambda obs: obs * np.array([1, 1, 0], np.float32))
    facts = {"spread": float(np.ptp(demos.observations[:, 2])), "real spread": float(right.observations[:, 2].std())}
    assert facts["spread"] == 0.0 < 1.0 < facts["real spread"]
    return {"subject": demos, "env": Cruise(), "facts": facts}


@case("leaked-action")
def greenhouse_power_after_the_switch() -> Built:
    """A gardener with an unsteady hand. The power was measured after he set the heater; in the environment, before."""
    env = Greenhouse(shows_power=True)
    right = record(env, grow(), 50, noise=0.2)
    power = np.float32(1.0) + right.actions[:, :1]
    demos = replace(right, observations=np.concatenate([right.observations[:, :4], power], axis=1))
    return planted(env, grow(), demos, quick(demos, env), quick(right, env), expert=grow())


@case("leaked-action")
def cruise_pedal_of_now() -> Built:
    """Demonstrations alone, of a driver with a restless foot: the recorded pedal tells the action that follows.

    In the environment it tells the previous one.
    """
    env = Cruise(shows_pedal=True)
    right = record(env, follow(), 40, noise=0.1)
    pedal = np.float32(1.0) + np.float32(0.3) * right.actions
    demos = replace(right, observations=np.concatenate([right.observations[:, :3], pedal], axis=1))

    def explained(data: us.Demonstrations) -> float:
        return float(np.corrcoef(data.observations[:, 3], data.actions[:, 0])[0, 1] ** 2)

    facts = {"pedal explains": explained(demos), "the environment's explains": explained(right)}
    facts["shortfall of a clone"] = large(shortfall(quick(demos, env), env, follow()))
    facts["without the defect"] = small(shortfall(quick(right, env), env, follow()))
    assert facts["pedal explains"] > 0.99
    return {"subject": demos, "env": env, "expert": follow(), "facts": facts}


@case("wrong-control-rate")
def drone_fifty_samples_a_second() -> Built:
    """Recorded fifty times a second, flown four times: states change more than ten times as much in a step."""
    fast, env = Drone(dt=0.02, horizon=250), Drone(dt=0.25, horizon=20)
    expert = hover(balance=1.4)
    demos = record(fast, expert, 20)
    result = quick(demos, env)
    facts = {"shortfall": large(shortfall(result, env, mean_return(fast, expert)))}
    facts["shortfall at the right rate"] = small(shortfall(quick(demos, fast), fast, expert))
    facts["return possible"] = mean_return(env, hover(balance=0.4))
    facts["return at the right rate"] = mean_return(fast, expert)
    return {"subject": result, "env": env, "demonstrations": demos, "facts": facts}


@case("wrong-control-rate")
def crane_every_fifth_sample() -> Built:
    """Demonstrations alone: the log kept each fifth step. A step of the data is as long as five of the environment."""
    right = record(Crane(), lift(), 60)
    kept = np.arange(0, right.steps, 5)
    assert right.terminals is not None
    assert not right.terminals.any()
    demos = replace(
        right,
        observations=right.observations[kept],
        recorded_actions=right.actions[kept],
        lengths=right.lengths // 5,
        horizon=right.horizon // 5,
        terminals=np.zeros(len(kept), bool),
        rewards=None,
    )

    def pace(data: us.Demonstrations) -> float:
        moved = np.abs(np.diff(data.observations[:, 0]))[~at_ends(data)[:-1]]
        return float(moved.mean() / np.abs(data.observations[:, 1]).mean())

    facts = {"seconds per step": pace(demos), "seconds per step of the environment": pace(right)}
    assert facts["seconds per step"] > 4 * facts["seconds per step of the environment"]
    return {"subject": demos, "env": Crane(), "facts": facts}


@case("time-limit-as-terminal")
def kiln_done_at_the_limit() -> Built:
    """Demonstrations alone: done is terminated or truncated. The kiln has no end: every episode has 100 steps."""
    right = record(KILN, burn, 30)
    assert right.terminals is not None
    facts = {"real terminals": float(right.terminals.sum()), "at the limit": float((right.lengths == 100).sum())}
    assert facts == {"real terminals": 0.0, "at the limit": 30.0}
    return {"subject": replace(right, terminals=at_ends(right)), "env": KILN, "facts": facts}


@case("time-limit-as-terminal")
def crane_parked_and_limit() -> Built:
    """Demonstrations alone: parking is terminal, and the episodes that the limit of 70 steps cut are marked as well."""
    env = Crane(parks=True, horizon=70)
    right = record(env, lift(), 60)
    assert right.terminals is not None
    facts = {"parked": float(right.terminals.sum()), "cut": float((~right.terminals[at_ends(right)]).sum())}
    assert min(facts.values()) >= 8
    return {"subject": replace(right, terminals=at_ends(right)), "env": env, "facts": facts}


@case("missing-terminals")
def warehouse_done_not_recorded() -> Built:
    """The column of terminals is false throughout, though episodes end with the delivery, long before the limit."""
    right = record(Warehouse(), fetch(), 40)
    assert right.terminals is not None
    facts = {"real terminals": float(right.terminals.sum()), "longest": float(right.lengths.max())}
    assert facts["real terminals"] == 40
    assert facts["longest"] < 50
    return {"subject": replace(right, terminals=np.zeros(right.steps, bool)), "env": Warehouse(), "facts": facts}


@case("missing-terminals")
def crane_parking_not_recorded() -> Built:
    """No environment: episodes end after all numbers of steps below the limit of 300, and none of them is terminal."""
    right = record(Crane(parks=True, horizon=300), lift(), 40)
    assert right.terminals is not None
    facts = {"parked": float(right.terminals.sum()), "different lengths": float(len(np.unique(right.lengths)))}
    facts["longest"] = float(right.lengths.max())
    assert facts["parked"] == 40
    assert facts["different lengths"] > 10
    assert facts["longest"] < 300
    return {"subject": replace(right, terminals=np.zeros(right.steps, bool)), "facts": facts}


# Optimisation


@case("under-trained")
def sorter_low_learning_rate() -> Built:
    """A run without its environment: the loss still falls, and another policy fits the same data far better."""
    demos = record(Sorter(), sort(), 150)
    result = quick(demos, Sorter(), lr=1e-5)
    built = planted(Sorter(), sort(), demos, result, quick(demos, Sorter()))
    built["facts"] |= {"error": error(result.policy, demos), "first loss": float(result.metrics["loss"][0, 0])}
    built["facts"]["last loss"] = float(result.metrics["loss"][0, -1])
    assert built["facts"]["last loss"] < 0.98 * built["facts"]["first loss"]
    del built["env"]
    return built


def overfitted(env: Any, expert: Any, demos: us.Demonstrations, fresh: us.Demonstrations) -> Built:
    """A large network that is trained for long, and is better on `fresh` episodes and in the environment early on."""
    options: dict[str, Any] = {"holdout": 0.2, "hidden": (128, 128), "weight_decay": 0.0, "ema_decay": 0.0}
    result = quick(demos, env, **options)
    early = quick(demos, env, **options | {"rounds": 1, "gradient_steps": 40})
    facts = {"shortfall": large(shortfall(result, env, expert)), "early": shortfall(early, env, expert)}
    facts |= {"error": error(result.policy, demos), "fresh error": error(result.policy, fresh)}
    facts["early fresh error"] = error(early.policy, fresh)
    assert facts["error"] < 0.5 * facts["fresh error"]
    assert facts["early fresh error"] < 0.85 * facts["fresh error"]
    assert facts["early"] < 0.75 * facts["shortfall"]
    return {"subject": result, "demonstrations": demos, "facts": facts}


@case("overfitting")
def sorter_slips_memorised() -> Built:
    """A quarter of the parts are in a wrong bin. The clone knows them by heart, and errs on other parts."""
    demos = record(Sorter(), sort(1, slips=0.25), 20)
    return overfitted(Sorter(), sort(), demos, record(Sorter(), sort(), 40, seed=9)) | {"env": Sorter()}


@case("overfitting")
def drone_shaking_pilot() -> Built:
    """A run without its environment: the pilot's hands shake, and the error on held-out flights is twice as high."""
    demos = record(Drone(), hover(), 5, noise=0.3)
    return overfitted(Drone(), hover(), demos, record(Drone(), hover(), 40, seed=9, noise=0.3))


@case("diverged-critic")
def warehouse_values_without_bound() -> Built:
    """SQIL whose values feed themselves: a high learning rate, and a target network that follows at once."""
    demos = record(Warehouse(), fetch(), 60)
    player = {"hidden": (64, 64), "lr": 0.3, "tau": 1.0, "discount": 0.999}
    algorithm = us.sqil(rounds=8, round_steps=512, frequency=64, soft_q=player)
    result = train(algorithm, demos, Warehouse())
    facts = {"shortfall": large(shortfall(result, Warehouse(), fetch()))}
    facts |= {f"largest {name}": float(np.nanmax(result.metrics[name])) for name in ("critic_loss", "q")}
    assert facts["largest critic_loss"] > 1e6
    assert facts["largest q"] > 1000.0  # no sum of discounted rewards of at most 1 is larger
    return {"subject": result, "env": Warehouse(), "expert": fetch(), "demonstrations": demos, "facts": facts}


@case("unstable-seeds")
def drone_three_units() -> Built:
    """Some seeds of a very narrow network hover and others crash, with the same data."""
    demos = record(Drone(), hover(), 40)
    result = quick(demos, Drone(), seeds=8, hidden=(3, 3), lr=3e-2, ema_decay=0.0)
    found = shortfalls(result, Drone(), hover())
    facts = {"lowest": small(float(found.min())), "highest": large(float(found.max()))}
    facts["seeds with a large gap"] = float((found > LARGE).sum())
    return {"subject": result, "env": Drone(), "expert": hover(), "demonstrations": demos, "facts": facts}
