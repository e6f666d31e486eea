"""The example MDPs: their experts, their gaps against closed forms, their drawings."""

from itertools import product

import matplotlib.image
import numpy as np
import pytest

from understudy.core.errors import SettingError
from understudy.evaluation.drawing import CRASH, EXPERT
from understudy.tabular import best_response, imitation_gap, performance
from understudy.tabular.examples import (
    cliff,
    cliff_gap,
    draw,
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
def test_the_expert_is_a_policy_that_no_other_beats(name):
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


def test_one_step_costs_nothing_but_the_action():
    """At T = 1 only CLIFF's −1 for a_2 is left."""
    gaps = [
        float(imitation_gap(example.mdp, example.reward, example.expert, erring(example, 0.5)))
        for example in (loop(1), cliff(1), unicycle(1), tree(1, 2))
    ]
    assert gaps == [0.0, 0.5, 0.0, 0.5]


def test_loop_comes_back_and_the_others_do_not():
    """Where the wrong action and then the expert's lead, from the start."""
    for name, places in {"LOOP": [2, 1, 1], "CLIFF": [6, 6, 6], "UNICYCLE": [1, 1, 1]}.items():
        example = EXAMPLES[name]
        following, acts = np.asarray(example.mdp.dynamics.index), example.expert[0].argmax(-1)
        state, visited = following[0, 1], []
        for _ in range(3):
            visited.append(int(state))
            state = following[state, acts[state]]
        assert visited == places


@pytest.mark.parametrize(("horizon", "actions"), [(1, 3), (4, 1), (4, 2), (3, 4)])
def test_each_sequence_of_actions_has_a_node_of_its_own(horizon, actions):
    example = tree(horizon, actions)
    following = np.asarray(example.mdp.dynamics.index)
    nodes = {(): 0}
    for length in range(1, horizon):
        for sequence in product(range(actions), repeat=length):
            nodes[sequence] = int(following[nodes[sequence[:-1]], sequence[-1]])
    assert sorted(nodes.values()) == list(range(example.mdp.states)), "one node each, and no others"
    assert example.mdp.states == sum(actions**depth for depth in range(horizon))
    on_path = [nodes[(actions - 1,) * length] for length in range(horizon)]
    assert np.argwhere(example.reward[0]).tolist() == [[node, actions - 1] for node in on_path]
    leaves = [nodes[sequence] for sequence in product(range(actions), repeat=horizon - 1)]
    assert (following[leaves] == np.array(leaves)[:, None]).all()


def test_a_learner_errs_alike_among_the_wrong_actions_and_only_where_there_are_any():
    learner = erring(EXAMPLES["TREE"], 0.2, where=3)
    np.testing.assert_allclose(learner[2, 3], [0.1, 0.1, 0.8])
    others = np.arange(EXAMPLES["TREE"].mdp.states) != 3
    np.testing.assert_array_equal(learner[:, others], EXAMPLES["TREE"].expert[:, others])
    falls = erring(EXAMPLES["CLIFF"], 0.2)
    check_policy(EXAMPLES["CLIFF"].mdp, falls)
    np.testing.assert_array_equal(falls[0, -1], [1, 0])
    np.testing.assert_allclose(falls[0, :-1], np.tile([0.8, 0.2], (6, 1)))


def test_large_trees_stay_within_reason():
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
        (lambda: tree(21, 2), r"has 2,097,151 nodes: at most 1,048,576"),
        (lambda: tree(10**9, 7), r"has about 10\^845098039 nodes"),
        (lambda: tree(2**20 + 1, 1), "has 1,048,577 nodes"),
        (lambda: erring(EXAMPLES["LOOP"], 1.5), r"p is 1.5"),
        (lambda: erring(EXAMPLES["LOOP"], 0.5, 3), "where is 3: 'all' or a state from 0 to 2"),
        (lambda: erring(EXAMPLES["LOOP"], 0.5, "s_1"), "where is 's_1'"),
        (lambda: erring(EXAMPLES["CLIFF"], 0.5, 6), "CLIFF has no wrong action in s_x"),
        (lambda: draw(tree(5, 3), "tree.png"), "has 121 nodes: at most 40"),
    ],
)
def test_what_cannot_be_is_named(make, words):
    with pytest.raises(SettingError, match=words):
        make()


@pytest.mark.parametrize(
    "example", [loop(6), cliff(6), cliff(2), unicycle(6), tree(3, 2)], ids=lambda example: example.name
)
def test_a_drawing_shows_the_experts_actions_and_the_errors(example, tmp_path):
    draw(example, tmp_path / "drawing.png")
    picture = matplotlib.image.imread(tmp_path / "drawing.png")[..., :3]
    for color in (EXPERT, CRASH):
        wanted = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        assert (abs(picture - wanted) < 0.01).all(-1).sum() > 500, f"{color} is in the picture"
