"""The example MDPs: their experts, and their gaps against closed forms."""

from itertools import product

import numpy as np
import pytest

from understudy.core.errors import SettingError
from understudy.tabular import best_response, imitation_gap, performance
from understudy.tabular.examples import (
    cliff,
    cliff_gap,
    erring,
    loop,
    loop_gap,
    tree,
    unicycle,
    unicycle_gap,
)
from understudy.tabular.mdp import check_policy, check_table

EXAMPLES = {"LOOP": loop(6), "CLIFF": cliff(6), "UNICYCLE": unicycle(6), "TREE": tree(4, 3)}
RETURNS = {"LOOP": 5, "CLIFF": 0, "UNICYCLE": 0, "TREE": 4}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_expert_is_optimal(name):
    example = EXAMPLES[name]
    check_policy(example.mdp, example.expert)
    check_table(example.mdp, example.reward, bound=1.0)
    assert example.name == name
    assert len(example.states) == example.mdp.states
    assert len(example.actions) == example.mdp.actions
    best = best_response(example.mdp, -example.reward)
    found = [float(performance(example.mdp, example.reward, policy)) for policy in (example.expert, best)]
    assert found == [RETURNS[name], RETURNS[name]]


@pytest.mark.parametrize("p", [0.0, 1e-4, 0.3, 1.0])
@pytest.mark.parametrize(
    ("name", "where", "closed_form"),
    [("LOOP", "all", loop_gap), ("CLIFF", 0, cliff_gap), ("UNICYCLE", "all", unicycle_gap)],
)
def test_the_gap_of_an_erring_learner_has_a_closed_form(name, where, closed_form, p):
    example = EXAMPLES[name]
    found = imitation_gap(example.mdp, example.reward, example.expert, erring(example, p, where))
    np.testing.assert_allclose(found, closed_form(p, 6), rtol=1e-10, atol=1e-14)


def test_with_one_step_only_rewards_of_actions_count():
    """At T = 1 an error costs CLIFF's −1 for a_2 and TREE's reward of the expert's action."""
    gaps = [
        float(imitation_gap(example.mdp, example.reward, example.expert, erring(example, 0.5)))
        for example in (loop(1), cliff(1), unicycle(1), tree(1, 2))
    ]
    assert gaps == [0.0, 0.5, 0.0, 0.5]


def test_the_expert_recovers_in_loop_only():
    """The states after one wrong action in the first state, followed by the expert's actions."""
    for name, expected in {"LOOP": [2, 1, 1], "CLIFF": [6, 6, 6], "UNICYCLE": [1, 1, 1]}.items():
        example = EXAMPLES[name]
        successors, acts = np.asarray(example.mdp.dynamics.index), example.expert[0].argmax(-1)
        state, visited = successors[0, 1], []
        for _ in range(3):
            visited.append(int(state))
            state = successors[state, acts[state]]
        assert visited == expected


@pytest.mark.parametrize(("horizon", "actions"), [(1, 3), (4, 1), (4, 2), (3, 4)])
def test_each_sequence_of_actions_has_its_own_node(horizon, actions):
    example = tree(horizon, actions)
    successors = np.asarray(example.mdp.dynamics.index)
    nodes = {(): 0}
    for length in range(1, horizon):
        for sequence in product(range(actions), repeat=length):
            nodes[sequence] = int(successors[nodes[sequence[:-1]], sequence[-1]])
    assert sorted(nodes.values()) == list(range(example.mdp.states)), "one node each, and no others"
    assert example.mdp.states == sum(actions**depth for depth in range(horizon))
    on_path = [nodes[(actions - 1,) * length] for length in range(horizon)]
    assert np.argwhere(example.reward[0]).tolist() == [[node, actions - 1] for node in on_path]
    leaves = [nodes[sequence] for sequence in product(range(actions), repeat=horizon - 1)]
    assert (successors[leaves] == np.array(leaves)[:, None]).all()


def test_an_erring_learner_takes_wrong_actions_uniformly():
    learner = erring(EXAMPLES["TREE"], 0.2, where=3)
    np.testing.assert_allclose(learner[2, 3], [0.1, 0.1, 0.8])
    others = np.arange(EXAMPLES["TREE"].mdp.states) != 3
    np.testing.assert_array_equal(learner[:, others], EXAMPLES["TREE"].expert[:, others])
    falls = erring(EXAMPLES["CLIFF"], 0.2)
    check_policy(EXAMPLES["CLIFF"].mdp, falls)
    np.testing.assert_array_equal(falls[0, -1], [1, 0])
    np.testing.assert_allclose(falls[0, :-1], np.tile([0.8, 0.2], (6, 1)))


def test_the_tables_of_a_large_tree_are_views():
    example = tree(20, 2)
    assert example.mdp.states == 2**20 - 1
    assert example.expert.base is not None, "a view, not T copies"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: loop(0), "horizon is 0"),
        (lambda: cliff(-1), "horizon is -1"),
        (lambda: unicycle(2.5), "horizon is 2.5"),
        (lambda: tree(0, 2), "horizon is 0"),
        (lambda: tree(3, 0), "actions is 0"),
        (lambda: tree(21, 2), r"2,097,151 nodes"),
        (lambda: tree(10**9, 7), r"10\^845098039 nodes"),
        (lambda: tree(2**20 + 1, 1), "1,048,577 nodes"),
        (lambda: erring(EXAMPLES["LOOP"], 1.5), r"p is 1.5"),
        (lambda: erring(EXAMPLES["LOOP"], 0.5, 3), "where is 3"),
        (lambda: erring(EXAMPLES["LOOP"], 0.5, "s_1"), "where is 's_1'"),
        (lambda: erring(EXAMPLES["CLIFF"], 0.5, 6), "where is 6"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_raise(make, words):
    with pytest.raises(SettingError, match=words):
        make()
