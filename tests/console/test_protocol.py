"""Messages of clients are checked field by field; everything else is refused by name."""

import json

import numpy as np
import pytest

from understudy.console.mapping import guess
from understudy.console.protocol import Refused, action_of, dumps, mapping_of, messages_for, parse
from understudy.core.types import Continuous, Discrete, MultiDiscrete

TORQUE, FOUR, PAIR = Continuous((-2.0,), (2.0,)), Discrete(4), MultiDiscrete((3, 2))
MESSAGES = messages_for(TORQUE)


def code_of(text: str) -> str:
    with pytest.raises(Refused) as refused:
        parse(text, MESSAGES)
    return refused.value.code


def test_a_message_has_its_fields_and_its_id() -> None:
    message = parse('{"type": "act", "seq": 3, "action": [0.5], "id": 7}', MESSAGES)
    assert (message.type, message.id, message.fields["seq"]) == ("act", 7, 3)
    assert message.fields["action"] == np.float32(0.5)


def test_fields_have_defaults() -> None:
    assert parse('{"type": "start"}', MESSAGES).fields == {"seed": None, "policy": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "3",
        '"step"',
        "{",
        '{"type": "act", "seq": 1, "action": [NaN]}',
        '{"type": "act", "seq": 1, "action": [Infinity]}',
        '{"type": "act", "seq": 1, "action": [1e999]}',
        "[" * 100_000,
        '{"type": "undo", "steps": ' + "9" * 10_000 + "}",
    ],
)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    assert code_of(text) == "not-json"


@pytest.mark.parametrize("kind", ["nothing", "", None, 3, ["step"], "__init__", "handle", {"a": 1}])
def test_an_unknown_type_is_refused(kind: object) -> None:
    assert code_of(json.dumps({"type": kind})) == "unknown-type"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "act", "seq": 1},
        {"type": "act", "seq": 1, "action": [0.0], "more": 1},
        {"type": "act", "seq": 1, "action": 0.0},
        {"type": "act", "seq": 1, "action": []},
        {"type": "act", "seq": 1, "action": [0.0, 0.0]},
        {"type": "act", "seq": 1, "action": ["0"]},
        {"type": "act", "seq": 1, "action": [True]},
        {"type": "act", "seq": 1, "action": [10**300]},
        {"type": "act", "seq": -1, "action": [0.0]},
        {"type": "act", "seq": 1.0, "action": [0.0]},
        {"type": "act", "seq": True, "action": [0.0]},
        {"type": "act", "seq": 2**32, "action": [0.0]},
        {"type": "mode", "mode": "admin"},
        {"type": "mode", "mode": None},
        {"type": "clock", "running": 1},
        {"type": "clock", "running": True, "rate": 1e9},
        {"type": "clock", "running": True, "rate": 0},
        {"type": "start", "seed": -1},
        {"type": "start", "seed": 2**31},
        {"type": "success", "success": "yes"},
        {"type": "success", "success": 1},
        {"type": "answer", "question": "../../etc", "action": [0.0]},
        {"type": "skip", "question": 3},
        {"type": "clip", "clip": "../token"},
        {"type": "clip", "clip": "x" * 81},
        {"type": "prefer", "pair": 1, "choice": "both"},
        {"type": "step", "id": -1},
        {"type": "step", "id": "1"},
        {"type": "step", "id": 1.5},
    ],
)
def test_a_wrong_field_is_refused(message: dict[str, object]) -> None:
    assert code_of(json.dumps(message)) == "wrong-field"


def test_a_refusal_names_the_message() -> None:
    with pytest.raises(Refused) as refused:
        parse('{"type": "nothing", "id": 12}', MESSAGES)
    assert refused.value.ref == 12


def test_a_continuous_action_is_clipped_to_the_bounds() -> None:
    assert action_of(TORQUE)([99]).tolist() == [2.0]


@pytest.mark.parametrize("wrong", [-1, 4, 1.0, True, [1], None, "1"])
def test_a_discrete_action_is_one_of_the_actions(wrong: object) -> None:
    assert action_of(FOUR)(3) == 3
    with pytest.raises(ValueError, match="whole number"):
        action_of(FOUR)(wrong)


@pytest.mark.parametrize("wrong", [[0], [3, 0], [0, 0, 0], [0.0, 1], 1])
def test_a_multi_discrete_action_has_a_number_for_each_part(wrong: object) -> None:
    assert action_of(PAIR)([2, 1]).tolist() == [2, 1]
    with pytest.raises(ValueError, match="needed"):
        action_of(PAIR)(wrong)


@pytest.mark.parametrize(
    "space", [TORQUE, FOUR, PAIR, Discrete(2), Discrete(3), Discrete(18), Continuous((0.0,) * 12, (1.0,) * 12)]
)
@pytest.mark.parametrize("env", ["", "Forest"])
def test_a_guessed_mapping_is_a_mapping(space: Continuous | Discrete | MultiDiscrete, env: str) -> None:
    guessed = guess(space, env)
    assert mapping_of(space)(guessed) == guessed
    assert guessed["bindings"]


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"bindings": [], "rest": [0.0], "more": 1},
        {"bindings": [], "rest": 0.0},
        {"bindings": {}, "rest": [0.0]},
        {"bindings": [{"input": "key:ArrowLeft", "index": 0}], "rest": [0.0]},
        {"bindings": [{"input": "key:<script>", "index": 0, "value": 1.0}], "rest": [0.0]},
        {"bindings": [{"input": "key:" + "A" * 50, "index": 0, "value": 1.0}], "rest": [0.0]},
        {"bindings": [{"input": "key:ArrowLeft", "index": 1, "value": 1.0}], "rest": [0.0]},
        {"bindings": [{"input": "key:ArrowLeft", "index": 0, "value": "1"}], "rest": [0.0]},
        {"bindings": [{"input": "key:KeyA", "index": 0, "value": 1.0}] * 201, "rest": [0.0]},
    ],
)
def test_a_wrong_mapping_is_refused(mapping: object) -> None:
    assert code_of(json.dumps({"type": "mapping", "mapping": mapping})) == "wrong-field"


def test_numbers_that_are_not_finite_are_null() -> None:
    assert json.loads(dumps({"a": [float("nan"), 1.0, {"b": float("inf")}]})) == {"a": [None, 1.0, {"b": None}]}
