"""Experts: trained by a command, saved with a card, bundled, and queried by name."""

import csv
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import run_command
from understudy.core.errors import NeedsError, SettingError, UnknownNameError
from understudy.core.statistics import Sample
from understudy.data import bundled
from understudy.envs import NamedEnv
from understudy.envs.gymnasium import available
from understudy.experts.bundled import bundled_experts
from understudy.experts.expert import as_expert
from understudy.experts.weights import plain_weights
from understudy.paper import published
from understudy.policies import Normalized
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization
from understudy.train.checkpoints import CHECKPOINT
from understudy.train.expert import train_expert

PLAYER = us.rl.SAC(hidden=(8,), gradient_steps=2)
SMALL = {"steps": 64, "seeds": 2, "episodes": 3, "envs": 2, "frequency": 16, "batch_size": 8, "random_steps": 16}
COMMAND = (
    "expert train Pendulum --steps 64 --seeds 2 --evaluate 3 --envs 2 --frequency 16 --batch-size 8 --random-steps 16 "
    "--sac.hidden 8 --sac.gradient-steps 2"
)
OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs the extra mujoco")
PAGE = (Path(__file__).parents[2] / "docs/experts.md").read_text(encoding="utf-8")
LOWEST_RETURN = {"CartPole-v1": 500, "LunarLander-v3": 270, "Pendulum": -200, "Pendulum-v1": -200, **published.EXPERT}
LOWEST_RETURN |= {"HalfCheetah-v5": 11_000, "Hopper-v5": 3200, "Walker2d-v5": 4300, "Ant-v5": 4000}
"""The least mean return that a bundled expert may have."""
SLOW = ("Bullet", "-v5")
"""Simulators that are slow: one episode is enough there."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory that the command writes, with tiny settings."""
    folder = tmp_path_factory.mktemp("experts")
    words = [*COMMAND.split(), "--out", str(folder / "mine")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["understudy", *words])
        assert run_command(words) == 0
    return folder / "mine"


def test_the_command_writes_a_complete_directory_and_nothing_else(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["card.json", "curve.csv", "policy.npz", "weights.npz"]
    assert list(saved.parent.iterdir()) == [saved]
    rows = list(csv.DictReader((saved / "curve.csv").open()))
    assert [(row["seed"], row["env_steps"]) for row in rows] == [(s, x) for s in "01" for x in ("16", "32", "48", "64")]
    actor, plain = us.load_policy(saved), us.policy_from_weights(saved / "weights.npz", "Pendulum")
    np.testing.assert_allclose(actor(OBS), plain(OBS), atol=1e-6)
    assert (np.abs(actor(OBS)) <= 2).all()


def test_the_card_describes_training_and_selection(saved):
    card = json.loads((saved / "card.json").read_text())
    assert card["command"] == f"understudy {COMMAND}"
    assert (card["env"], card["player"]["class"], card["player"]["hidden"]) == ("Pendulum", "SAC", [8])
    assert (card["settings"]["envs"], card["settings"]["batch_size"]) == (2, 8)
    assert card["seed"] == int(max(card["candidates"], key=card["candidates"].get))
    actor = us.load_policy(saved)
    assert actor.about["seed"] == card["seed"]
    fresh = us.evaluate([actor], "Pendulum", 3, seed=1).returns
    assert card["return"]["mean"] == pytest.approx(fresh.mean(), abs=1e-2)
    assert card["return"]["mean"] != card["candidates"][str(card["seed"])]
    assert card["return"]["std"] == pytest.approx(fresh.std(ddof=1), abs=1e-2)
    assert card["curve"]["env_steps"] == [16, 32, 48, 64]
    assert {"jax", "understudy", "python"} <= set(card["versions"])


def test_an_interrupted_call_resumes_to_the_same_expert(saved, tmp_path):
    def ctrl_c(done, total, metrics):
        if done == 1:
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "mine"
    with pytest.raises(KeyboardInterrupt):
        train_expert("Pendulum", out, PLAYER, **SMALL, progress=ctrl_c)
    assert [path.name for path in tmp_path.iterdir()] == [f"mine{CHECKPOINT}"]
    rounds = []
    trained = train_expert("Pendulum", out, PLAYER, **SMALL, progress=lambda done, *_: rounds.append(done))
    assert rounds[0] > 1
    assert list(tmp_path.iterdir()) == [out]
    np.testing.assert_array_equal(trained.actor(OBS), us.load_policy(saved)(OBS))


def test_a_directory_that_is_not_empty_is_refused_before_training(saved, understudy):
    status, _, err = understudy(*COMMAND.split(), "--out", str(saved))
    assert status == 2
    assert f"'{saved}'" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("expert train Hopper", "'Hopper'"),
        ("expert trian CartPole-v1", "'expert train'"),
        ("expert train CartPole-v1 --player sac --workers 0", "SAC"),
        ("expert train CartPole-v1 --sac.lr 1", "--player sac"),
        ("expert train CartPole-v1 --evaluate 0", "episodes is 0"),
        ("demos record Acrobot-v1 --expert bundled --out x.npz", "'Acrobot-v1'"),
        ("demos record CartPole-v1 --noise 2 --out x.npz", "noise is 2.0"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_writes_nothing(words, named, understudy, tmp_path):
    status, _, err = understudy(*words.split())
    assert status == 2
    assert named in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(bundled_experts()))
def test_bundled_experts_score_what_their_cards_say(name):
    actor = us.load_expert(name)
    card = actor.about["card"]
    assert (card["env"], actor.about["seed"]) == (name, card["seed"])
    assert "/" not in card["command"]
    assert card["return"]["mean"] >= LOWEST_RETURN[name]
    if dict(available()).get(name):
        pytest.skip("its simulator is not installed")
    env = us.make(name, env_args=card.get("env_args"))
    assert actor.spec == env.spec
    # The episodes of the card, maybe on another machine, where a landing may end otherwise. The return of a single
    # episode deviates more than a mean.
    slow = any(part in name for part in SLOW)
    returns = us.evaluate([actor], env, episodes=1 if slow else card["return"]["episodes"], seed=1).returns
    tolerance = (6 if slow else 1.5) * card["return"]["std"] + 1e-3
    assert returns.mean() == pytest.approx(card["return"]["mean"], abs=tolerance)


def test_an_expert_without_bundled_demonstrations_is_one_of_mujoco():
    assert {*bundled_experts()} - {*bundled()} == {"Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"}


@pytest.mark.parametrize("name", sorted({*bundled_experts()} & {*bundled()}))
def test_bundled_demonstrations_come_with_an_expert(name):
    demonstrations = us.load(name)
    assert demonstrations.episodes == 25
    assert demonstrations.env == name
    if name == "Pendulum":  # recorded from its scripted expert
        return
    actor = us.load_expert(name)
    assert demonstrations.spec == actor.spec
    chosen = actor(demonstrations.observations)
    if isinstance(actor.spec.action, us.Discrete):
        assert (chosen == demonstrations.actions).mean() > 0.999
    else:
        np.testing.assert_allclose(chosen, demonstrations.actions, atol=1e-3)
    recorded, scored = demonstrations.expert_return, Sample(*actor.about["card"]["return"].values())
    tolerance = 4 * np.hypot(recorded.standard_error, scored.standard_error) + 1e-3
    assert recorded.mean == pytest.approx(scored.mean, abs=tolerance)


def test_loading_an_expert_needs_no_simulator():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pybullet', 'pybullet_envs_gymnasium', 'Box2D')))  # to import one fails\n"
        "import understudy as us\n"
        "from understudy.core.errors import ExtraError\n"
        "for name in ('CartPole-v1', 'LunarLander-v3', 'HalfCheetahBulletEnv-v0', 'AntBulletEnv-v0'):\n"
        "    us.load_expert(name)(us.load(name).observations[0])\n"
        "assert not [m for m in sys.modules if m.startswith('gymnasium.envs.classic_control.')]\n"
        "try: us.make('HalfCheetahBulletEnv-v0')\n"
        "except ExtraError: print('a simulator is missing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a simulator is missing\n"), done.stderr


def test_the_bundled_expert_is_the_default_without_a_scripted_one():
    env = us.make("CartPole-v1")
    plain = us.load_expert("CartPole-v1").policy
    for given in (None, "bundled", "CartPole-v1"):
        expert = as_expert(given, env)
        assert expert.deterministic
        assert jax.tree.all(jax.tree.map(np.array_equal, expert.policy, plain))
    assert not as_expert(None, us.make("Pendulum")).deterministic  # its scripted expert
    with pytest.raises(NeedsError, match="CartPole-v1"):
        as_expert("scripted", env)
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        us.load_expert("CartPol-v1")
    assert "card" not in repr(us.load_expert("CartPole-v1"))


@pytest.mark.slow
def test_the_example_of_the_page_queries_the_bundled_expert(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)[0]
    names, printed = {}, []
    exec(code, names | {"print": printed.append}, names)
    assert printed == [us.load_expert("CartPole-v1").about["card"]["return"]]
    assert names["result"].metrics["queries"][0, -1] > 0


def test_training_with_a_bundled_expert_prints_queries_and_the_last_return(understudy):
    small = "--episodes 1 --rounds 2 --episodes-per-round 1 --gradient-steps 5 --hidden 8"
    words = f"train dagger --env CartPole-v1 --expert bundled {small}"
    status, out, _ = understudy(*words.split())
    assert status == 0
    metrics = us.load_run("runs/dagger").metrics
    assert metrics["queries"][0, -1] > 0
    assert f"{metrics['return'][0, -1]:.4g}" in out.split()
    assert f"{metrics['queries'][0, -1]:.4g}" in out.split()


def test_the_table_of_the_page_agrees_with_the_cards():
    for name in bundled_experts():
        card = us.load_expert(name).about["card"]
        steps = card["settings"]["rounds"] * card["settings"]["round_steps"]
        score = f"{card['return']['mean']:.1f} ± {card['return']['std']:.1f}"
        cells = [name, card["player"]["class"], f"{steps:,}", score, str(len(card["seeds"]))]
        if name in bundled() and name != "Pendulum":  # its demonstrations are those of its scripted expert
            cells.append(f"{us.load(name).expert_return.mean:.1f}")
        assert f"| {' | '.join(cells)} |" in PAGE


@needs_mujoco
def test_a_bundled_expert_acts_in_the_environment_that_it_was_trained_in():
    """Its card names the arguments, and another Ant is refused in one line that does too."""
    args = {"include_cfrc_ext_in_observation": False}
    assert us.load_expert("Ant-v5").about["card"]["env_args"] == args
    assert as_expert(None, us.make("Ant-v5", env_args=args)).deterministic
    assert as_expert("Ant-v5", us.make(lambda: gymnasium.make("Ant-v5", **args))).deterministic
    for other in (us.make("Ant-v5"), us.make("Ant-v5", env_args={"include_cfrc_ext_in_observation": True})):
        with pytest.raises(NeedsError, match="--env-arg include_cfrc_ext_in_observation=false"):
            as_expert("bundled", other)


def test_a_card_has_the_arguments_of_the_environment(tmp_path):
    named = NamedEnv("Pendulum-v1", {"g": 9.0}, horizon=20)
    card = train_expert(named, tmp_path / "mine", PLAYER, **{**SMALL, "steps": 32, "seeds": 1, "workers": 0}).card
    assert (card["env"], card["env_args"], card["horizon"], "wrap" in card) == ("Pendulum-v1", {"g": 9.0}, 20, False)


def test_an_expert_is_recorded_deterministically_or_with_noise():
    plain = us.record("CartPole-v1", episodes=2, seed=3, workers=0)
    np.testing.assert_array_equal(plain.lengths, [500, 500])
    np.testing.assert_array_equal(us.load_expert("CartPole-v1")(plain.observations), plain.actions)
    random = us.record("CartPole-v1", episodes=20, seed=3, noise=1.0, workers=0)
    assert random.lengths.mean() < 60  # every action is random
    exact = us.record("Pendulum", "scripted", episodes=2, deterministic=True)
    noisy = us.record("Pendulum", "scripted", episodes=2, deterministic=True, noise=0.1)
    np.testing.assert_array_equal(exact.observations[0], noisy.observations[0])
    expert = us.make("Pendulum").expert()
    inside = np.abs(noisy.actions) < 2
    difference = (noisy.actions - expert.mode(expert.reset(np.random.default_rng(0)), noisy.observations))[inside]
    assert 0.1 < difference.std() < 0.25  # 0.1 of the half-range 2, where it is not clipped
    with pytest.raises(SettingError, match="noise is -1"):
        us.record("Pendulum", episodes=1, noise=-1)


def test_plain_weights_are_those_of_networks_without_normalized_observations():
    spec, random = us.make("Pendulum").spec, np.random.default_rng(1)
    shapes = ((3, 8), (8, 2), (8,), (2,))
    *weights, bias, last = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    gaussian = Gaussian(MLP(tuple(weights), (bias, last), "relu"))
    normalization = Normalization(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(1, np.float32), np.full(1, 2, np.float32)
    )
    actor = us.Actor(Normalized(gaussian, normalization), spec)
    weights = plain_weights(actor)
    assert weights["w1"].shape == (8, 1)
    again = us.policy_from_weights(weights, "Pendulum")
    np.testing.assert_allclose(again(OBS), actor(OBS), atol=1e-6)
    np.testing.assert_array_equal(plain_weights(again)["w1"], weights["w1"])
    net = MLP(
        tuple(3 * weight[:, :n] for weight, n in zip(gaussian.net.weights, (8, 1), strict=True)),
        (bias, last[:1]),
        "relu",
    )
    held = us.Actor(Normalized(StateDependent.init(net, -3.0, 64), normalization), spec)
    assert plain_weights(held)["clip"] == 2.0
    assert np.abs(held(OBS)).max() == pytest.approx(2 * np.tanh(2.0))  # it is clipped somewhere
    np.testing.assert_allclose(us.policy_from_weights(plain_weights(held), "Pendulum")(OBS), held(OBS), atol=1e-6)
    moved = replace(normalization, obs_mean=normalization.obs_mean + 1)
    assert plain_weights(us.Actor(Normalized(gaussian, moved), spec)) is None
    assert plain_weights(us.Actor(us.make("Pendulum").expert(), spec)) is None


def test_the_scripted_expert_acts_stochastically_when_it_is_named_too():
    unnamed, named = (us.record("Forest", expert, episodes=2, progress=False) for expert in (None, "scripted"))
    np.testing.assert_array_equal(named.actions, unnamed.actions)
