"""`understudy.deploy`: policies without JAX, and a package that imports JAX only when it is used."""

import ast
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
import understudy.deploy
from support.fuzzing import make_policies
from understudy.core.errors import RunError, SpecError, UnknownNameError
from understudy.deploy.forward import FIELDS
from understudy.policies import Deterministic
from understudy.policies.networks import MLP
from understudy.policies.structure import CLASSES

SOURCE = Path(us.__file__).parent
HEAVY = {"jax", "jaxlib.xla_client", "equinox", "optax", "gymnasium", "scipy", "matplotlib", "rich", "tyro"}


@pytest.fixture(scope="module")
def run(continuous, tmp_path_factory):
    """A run directory with four policies."""
    result = us.imitate(us.bc(rounds=1, gradient_steps=2, hidden=(8,)), continuous, episodes=[2, 4], seeds=2)
    path = tmp_path_factory.mktemp("runs") / "bc"
    result.save(path)
    return path


def test_a_run_is_loaded_and_acts_without_jax(run):
    code = f"""
import json, sys
import numpy as np
import understudy.deploy
policy = understudy.deploy.load({str(run)!r})
actions = policy(np.arange(12.0).reshape(4, 3))
print(json.dumps([actions.tolist(), sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    actions, modules = json.loads(done.stdout)
    np.testing.assert_array_equal(np.array(actions, np.float32), us.load_policy(run)(np.arange(12.0).reshape(4, 3)))
    assert not HEAVY & set(modules)


def test_help_of_the_command_line_does_not_import_jax():
    code = "import sys; from understudy.cli.main import run_command; run_command(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, "--help"], capture_output=True, text=True, check=False
    )
    assert "export" in done.stdout
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "understudy.cli.main" in imported
    assert not imported & {"jax", "equinox", "gymnasium", "matplotlib"}


@pytest.mark.parametrize("name", [*us.__all__, *us.ALGORITHMS, "policies", "deploy"])
def test_every_public_name_is_there(name):
    assert getattr(us, name) is not None
    assert name in dir(us) or name == "policies"


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'understudy' has no attribute 'nothing'"):
        us.nothing  # noqa: B018


def imports_of(path):
    """The modules that a file imports, also inside functions, but not for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_module_that_uses_jax_configures_it_first():
    """Directly, or through a module that it imports: `core.arrays` imports `core.jax_setup`."""
    files = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    imported = {name: list(imports_of(path)) for name, path in files.items()}

    def reaches(name):
        seen, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            packages = [one.rsplit(".", i)[0] for i in range(1, one.count("."))]
            found = (
                other.removesuffix(f".{last}") if other not in files else other
                for other in imported[one]
                for last in [other.rsplit(".")[-1]]
            )
            waiting += [other for other in (*packages, *found) if other in files and other != "understudy"]
        return "understudy.core.jax_setup" in seen

    users = [name for name, names in imported.items() if any(one.split(".")[0] == "jax" for one in names)]
    assert len(users) > 50
    allowed = {"understudy.core.compile_cache"}  # jax_setup imports it
    assert [name for name in users if not reaches(name) and name not in allowed] == []
    assert not reaches("understudy.deploy")


def test_the_table_of_fields_is_that_of_the_classes():
    assert {name: tuple(field.name for field in dataclasses.fields(kind)) for name, kind in CLASSES.items()} == FIELDS


def test_each_policy_of_a_run_can_be_loaded_by_name(run):
    obs = np.ones((2, 3), np.float32)
    for name in ("episodes2-seed0", "episodes4-seed1"):
        policy = understudy.deploy.load(run, policy=name)
        assert policy.about["seed"] == int(name[-1])
        np.testing.assert_array_equal(policy(obs), us.load_policy(run / f"policies/{name}.npz")(obs))
        np.testing.assert_array_equal(policy(obs), us.load_policy(run, name)(obs))
    with pytest.raises(UnknownNameError, match="unknown policy 'episodes3-seed0'"):
        understudy.deploy.load(run, policy="episodes3-seed0")
    with pytest.raises(RunError, match="holds one policy"):
        understudy.deploy.load(run / "policies/episodes2-seed0.npz", policy="episodes2-seed0")


def test_the_result_exports_the_selected_policy_with_its_training(run, tmp_path):
    result = us.load_run(run)
    result.export(tmp_path / "p")
    policy = understudy.deploy.load(tmp_path / "p")
    obs = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(policy(obs), result.policy(obs))
    np.testing.assert_array_equal(us.load_policy(tmp_path / "p")(obs), result.policy(obs))
    assert policy.export["demonstrations"]["digest"] == result.config["demonstrations"]["digest"]
    assert policy.export["algorithm"] == {"name": "bc", "preset": "custom", "title": "Behavioral cloning"}
    assert policy.export["policy"] == result.runs[result.selected].name
    with pytest.raises(UnknownNameError, match="unknown policy 'seed9'"):
        result.export(tmp_path / "q", policy="seed9")


def test_a_damaged_run_is_refused(run, tmp_path):
    for name in ("nothing", "nothing.npz"):
        with pytest.raises(RunError, match=r"no policy at|no run at"):
            understudy.deploy.load(tmp_path / name)
    copy = tmp_path / "run"
    copy.mkdir()
    (copy / "config.json").write_text((run / "config.json").read_text())
    with pytest.raises(RunError, match=r"no file .*runs\.csv"):
        understudy.deploy.load(copy)


@pytest.mark.parametrize(("number", "words"), [(3, "an older"), (99, "a newer")])
def test_a_file_of_another_version_says_what_to_do(number, words, tmp_path):
    path = make_policies(tmp_path)[0]
    with np.load(path) as file:
        arrays = dict(file)
    structure = {**json.loads(str(arrays["structure.json"])), "format": number}
    np.savez(path, **{**arrays, "structure.json": np.array(json.dumps(structure))})
    with pytest.raises(RunError, match=f"written by {words} version of understudy .* use that version, or train again"):
        understudy.deploy.load(path)


@pytest.mark.parametrize("limit", [[1.0], [0.1, -1.0], [0.1, 0.1, 0.1], 3, "x"])
def test_a_file_with_a_wrong_limit_is_refused(limit, tmp_path):
    path = make_policies(tmp_path)[0]
    with np.load(path) as file:
        arrays = dict(file)
    structure = {**json.loads(str(arrays["structure.json"])), "export": {"max_change": limit}}
    np.savez(path, **{**arrays, "structure.json": np.array(json.dumps(structure))})
    with pytest.raises(RunError, match="max_change"):
        understudy.deploy.load(path)


def test_an_observation_can_be_given_by_its_named_parts(tmp_path):
    net = MLP((np.eye(3, 1, dtype=np.float32),), (np.zeros(1, np.float32),), "identity")
    spec = us.Spec((3,), us.Continuous((-9.0,), (9.0,)), 9, obs_parts=(("arm", 2), ("goal", 1)))
    us.Actor(Deterministic(net), spec).save(tmp_path / "p.npz")
    policy = understudy.deploy.load(tmp_path / "p.npz")
    assert policy({"goal": [5.0], "arm": np.array([[2.0], [3.0]])}) == [2.0]
    for wrong in ({"arm": [1, 2]}, {"arm": [1], "goal": [1]}, {"arm": [1, 2], "goal": [1], "x": [1]}):
        with pytest.raises(SpecError, match=r"the policy takes arm \(2 numbers\), goal \(1 numbers\)"):
            policy(wrong)


def test_a_batch_of_named_parts_gives_a_batch_of_actions(tmp_path):
    net = MLP((np.eye(3, 1, dtype=np.float32),), (np.zeros(1, np.float32),), "identity")
    spec = us.Spec((3,), us.Continuous((-9.0,), (9.0,)), 9, obs_parts=(("arm", 2), ("goal", 1)))
    actor = us.Actor(Deterministic(net), spec)
    actor.save(tmp_path / "p.npz")
    for policy in (actor, understudy.deploy.load(tmp_path / "p.npz")):
        assert policy({"goal": [5.0], "arm": [2.0, 3.0]}).tolist() == [2.0]
        for rows in (1, 2, 3):
            arm = np.arange(2.0 * rows).reshape(rows, 2)
            np.testing.assert_array_equal(policy({"arm": arm, "goal": np.zeros((rows, 1))}), arm[:, :1])
        with pytest.raises(SpecError, match="the policy takes arm"):
            policy({"arm": np.zeros((3, 2)), "goal": np.zeros((2, 1))})
    with pytest.raises(SpecError, match="the policy takes an array"):
        us.load_expert("Pendulum-v1")({"arm": [1.0, 2.0, 3.0]})


def test_a_change_of_the_returned_action_does_not_move_the_limit_of_the_next_one(tmp_path):
    us.load_expert("Pendulum-v1").export(tmp_path / "p", max_change=0.5)
    policy = understudy.deploy.load(tmp_path / "p")
    policy.reset(last_action=[0.0])
    observation = np.array([0.0, 1.0, 1.0], np.float32)
    first = policy(observation)
    before = first.copy()
    first *= -3  # a caller that scales its own array
    assert np.abs(policy(observation) - before).max() <= 0.5 + 1e-6


def test_the_index_of_a_state_must_be_one(tmp_path):
    path = {path.stem: path for path in make_policies(tmp_path)}["table"]
    policy = understudy.deploy.load(path)
    assert policy(5) == 0
    for wrong in (6, -1, 1.5, [0, 6]):
        for act in (policy, us.load_policy(path)):
            with pytest.raises(SpecError, match="a whole number from 0 to 5"):
                act(wrong)


@pytest.mark.parametrize("wrong", ["up", [[1.0], [1.0, 2.0]], None, {"a": object()}])
def test_an_observation_that_is_no_array_of_numbers_is_refused(wrong, tmp_path):
    path = {path.stem: path for path in make_policies(tmp_path)}["noisy"]
    for act in (understudy.deploy.load(path), us.load_policy(path)):
        with pytest.raises(SpecError, match=r"^observation .*the policy takes"):
            act(wrong)


def test_text_of_a_file_is_shown_without_control_characters(tmp_path):
    actor = us.load_policy(make_policies(tmp_path)[0])
    us.Actor(actor.policy, actor.spec, {"algorithm": "\x1b[31m", "x\n": "y"}).save(tmp_path / "p.npz")
    assert repr(understudy.deploy.load(tmp_path / "p.npz")).isprintable()


@pytest.mark.parametrize("limit", [None, 0.5])
def test_stable_baselines3_evaluates_a_policy(limit, tmp_path):
    pytest.importorskip("stable_baselines3")
    import gymnasium
    from stable_baselines3.common.evaluation import evaluate_policy

    us.load_expert("Pendulum-v1").export(tmp_path / "p", max_change=limit)
    mean, _ = evaluate_policy(understudy.deploy.load(tmp_path / "p"), gymnasium.make("Pendulum-v1"), n_eval_episodes=5)
    assert -400 < mean < 0
