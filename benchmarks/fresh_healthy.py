"""Healthy runs in the tasks of benchmarks/fresh_cases.py: the policies are as good as the expert."""

from dataclasses import replace
from functools import partial

import hidden_cases
from fresh_cases import Built
from fresh_envs import (
    KILN,
    Bicycle,
    Crane,
    Cruise,
    Drone,
    Greenhouse,
    Sorter,
    Warehouse,
    burn,
    fetch,
    follow,
    grow,
    hover,
    lift,
    ride,
    sort,
)
from hidden_cases import Builder, record, shortfall, small, train
from unseen_cases import advil, dagger, healthy, quick, soft_q

CASES: dict[str, Builder] = {}
"""Name → builder, in order."""
case = partial(hidden_cases.case, cases=CASES)


@case("none")
def healthy_crane() -> Built:
    demos = record(Crane(), lift(), 60, seed=20)
    return healthy(Crane(), lift(), quick(demos, Crane(), seeds=2), demos, expert=lift())


@case("none")
def healthy_cruise_no_expert_no_rewards() -> Built:
    demos = replace(record(Cruise(), follow(), 40, seed=20), rewards=None)
    return healthy(Cruise(), follow(), quick(demos, Cruise(), seeds=2), demos)


@case("none")
def healthy_cruise_previous_pedal() -> Built:
    """The last column is the previous action, in the data as in the environment."""
    env = Cruise(shows_pedal=True)
    demos = record(env, follow(), 60, seed=20, noise=0.1)
    return healthy(env, follow(), quick(demos, env, seeds=2), demos, expert=follow())


@case("none")
def healthy_drone_dagger() -> Built:
    demos = record(Drone(), hover(), 10, seed=20)
    return healthy(Drone(), hover(), train(dagger(), demos, Drone(), expert=hover()), demos, expert=hover())


@case("none")
def healthy_greenhouse_advil() -> Built:
    env, demos = Greenhouse(), record(Greenhouse(), grow(), 50, seed=20)
    return healthy(env, grow(), train(advil(), demos, env), demos, expert=grow())


@case("none")
def healthy_greenhouse_alone() -> Built:
    """Demonstrations alone, without the environment. A clone of them is as good as the expert."""
    demos = record(Greenhouse(), grow(), 50, seed=20)
    facts = {"shortfall of a clone": small(shortfall(quick(demos, Greenhouse()), Greenhouse(), grow()))}
    return {"subject": demos, "facts": facts}


@case("none")
def healthy_warehouse_either_way() -> Built:
    """The expert chooses among equally short ways at random, and any of them will do."""
    expert = fetch(1, sure=0.5)
    demos = record(Warehouse(), expert, 150, seed=20)
    return healthy(Warehouse(), fetch(2), quick(demos, Warehouse(), seeds=2), demos)


@case("none")
def healthy_sorter_soft_q() -> Built:
    demos = record(Sorter(), sort(), 400, seed=20)
    return healthy(Sorter(), sort(), train(soft_q(gradient_steps=400), demos, Sorter()), demos)


@case("none")
def healthy_kiln() -> Built:
    demos = record(KILN, burn, 40, seed=20)
    return healthy(KILN, burn, quick(demos, KILN, seeds=2), demos, expert=burn)


@case("none")
def healthy_bicycle_dagger() -> Built:
    """The bicycle of `bicycle_always_upright`, with an algorithm that suits it."""
    demos = record(Bicycle(), ride, 20, seed=20)
    return healthy(Bicycle(), ride, train(dagger(), demos, Bicycle(), expert=ride), demos, expert=ride)
