"""Experts: trained by a command, kept with a card, bundled, and asked for by name."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main as cli
from understudy.core.errors import NeedsError, SettingError, UnknownNameError
from understudy.core.statistics import Sample
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
PAGE = (Path(__file__).parents[2] / "docs/experts.md").read_text(encoding="utf-8")
WORTH = {"CartPole-v1": 500, "LunarLander-v3": 270, "Pendulum": -200, "Pendulum-v1": -200, **published.EXPERT}
"""What the least of a bundled expert is."""


def understudy(words, patch):
    """The exit status of a command."""
    patch.setattr(sys, "argv", ["understudy", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The directory of the command with tiny settings."""
    folder = tmp_path_factory.mktemp("experts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert understudy(f"{COMMAND} --out {folder / 'mine'}", patch) == 0
    return folder / "mine"


def test_the_command_writes_a_whole_directory_and_nothing_beside_it(kept):
    assert sorted(path.name for path in kept.iterdir()) == ["card.json", "curve.csv", "policy.npz", "weights.npz"]
    assert list(kept.parent.iterdir()) == [kept]
    rows = list(csv.DictReader((kept / "curve.csv").open()))
    assert [(row["seed"], row["env_steps"]) for row in rows] == [(s, x) for s in "01" for x in ("16", "32", "48", "64")]
    actor, plain = us.load_policy(kept), us.policy_from_weights(kept / "weights.npz", "Pendulum")
    np.testing.assert_allclose(actor(OBS), plain(OBS), atol=1e-6)
    assert (np.abs(actor(OBS)) <= 2).all()


def test_the_card_says_what_was_done_and_how_the_seed_was_chosen(kept):
    card = json.loads((kept / "card.json").read_text())
    assert card["command"] == f"understudy {COMMAND}"
    assert (card["env"], card["player"]["class"], card["player"]["hidden"]) == ("Pendulum", "SAC", [8])
    assert (card["settings"]["envs"], card["settings"]["batch_size"]) == (2, 8)
    assert card["seed"] == int(max(card["tried"], key=card["tried"].get))
    assert "best of 2 seeds by the mean return of 3 episodes" in card["chosen"]
    assert "again on 3 fresh ones" in card["chosen"]
    actor = us.load_policy(kept)
    assert actor.about["seed"] == card["seed"]
    fresh = us.evaluate([actor], "Pendulum", 3, seed=1).returns
    assert card["return"]["mean"] == pytest.approx(fresh.mean(), abs=1e-2)
    assert card["return"]["mean"] != card["tried"][str(card["seed"])]
    assert card["return"]["std"] == pytest.approx(fresh.std(ddof=1), abs=1e-2)
    assert card["curve"]["env_steps"] == [16, 32, 48, 64]
    assert {"jax", "understudy", "python"} <= set(card["versions"])


def test_interrupted_the_same_call_goes_on_to_the_same_expert(kept, tmp_path):
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
    np.testing.assert_array_equal(trained.actor(OBS), us.load_policy(kept)(OBS))


def test_a_taken_place_is_refused_before_training(kept, monkeypatch, capsys):
    assert understudy(f"{COMMAND} --out {kept}", monkeypatch) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("expert train Hopper", "unknown environment 'Hopper'"),
        ("expert trian CartPole-v1", "did you mean 'expert train'?"),
        ("expert train CartPole-v1 --player sac --workers 0", "SAC is for continuous actions"),
        ("expert train CartPole-v1 --sac.lr 1", "settings of sac were given, but ppo learns in CartPole-v1"),
        ("expert train CartPole-v1 --evaluate 0", "episodes is 0"),
        ("demos collect Acrobot-v1 --expert bundled --out x.npz", "unknown bundled expert 'Acrobot-v1'"),
        ("demos collect CartPole-v1 --noise 2 --out x.npz", "noise is 2.0"),
    ],
)
def test_a_mistake_gets_one_line_and_leaves_nothing(words, said, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert understudy(words, monkeypatch) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(bundled_experts()))
def test_bundled_experts_score_what_their_cards_say(name):
    actor = us.load_expert(name)
    card = actor.about["card"]
    assert (card["env"], actor.about["seed"]) == (name, card["seed"])
    assert "/" not in card["command"]
    assert card["return"]["mean"] >= WORTH[name]
    if dict(available()).get(name):
        pytest.skip("its simulator is not installed")
    assert actor.spec == us.make(name).spec
    # The same episodes as the card's, but maybe another machine, on which a landing may end otherwise. Of those that
    # take a second each only the first is played, which strays further than a mean.
    slow = "Bullet" in name
    played = us.evaluate([actor], name, episodes=1 if slow else card["return"]["episodes"], seed=1).returns
    near = (6 if slow else 1.5) * card["return"]["std"] + 1e-3
    assert played.mean() == pytest.approx(card["return"]["mean"], abs=near)


@pytest.mark.parametrize("name", sorted(bundled_experts()))
def test_bundled_demonstrations_come_with_an_expert(name):
    demonstrations = us.load(name)
    assert demonstrations.episodes == 25
    assert demonstrations.env == name
    if name == "Pendulum":  # those are its script's
        return
    actor = us.load_expert(name)
    assert demonstrations.spec == actor.spec
    chosen = actor(demonstrations.observations)
    if isinstance(actor.spec.action, us.Discrete):
        assert (chosen == demonstrations.actions).mean() > 0.999
    else:
        np.testing.assert_allclose(chosen, demonstrations.actions, atol=1e-3)
    shown, scored = demonstrations.expert_return, Sample(*actor.about["card"]["return"].values())
    near = 4 * np.hypot(shown.standard_error, scored.standard_error) + 1e-3
    assert shown.mean == pytest.approx(scored.mean, abs=near)


def test_loading_makes_no_environment_and_needs_no_simulator():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pybullet', 'pybullet_envs_gymnasium', 'Box2D')))  # to import one fails\n"
        "import understudy as us\n"
        "for name in ('CartPole-v1', 'LunarLander-v3', 'HalfCheetahBulletEnv-v0', 'AntBulletEnv-v0'):\n"
        "    us.load_expert(name)(us.load(name).observations[0])\n"
        "assert not [m for m in sys.modules if m.startswith('gymnasium.envs.classic_control.')]\n"
        "try: us.make('HalfCheetahBulletEnv-v0')\n"
        "except us.errors.ExtraError: print('to play, it needs one')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "to play, it needs one\n"), done.stderr


def test_who_is_asked_can_be_bundled_and_is_where_nobody_else_is_named():
    env = us.make("CartPole-v1")
    plain = us.load_expert("CartPole-v1").policy
    for given in (None, "bundled", "CartPole-v1"):
        asked = as_expert(given, env)
        assert asked.deterministic
        assert jax.tree.all(jax.tree.map(np.array_equal, asked.policy, plain))
    assert not as_expert(None, us.make("Pendulum")).deterministic  # its script
    with pytest.raises(NeedsError, match="no scripted expert"):
        as_expert("scripted", env)
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        us.load_expert("CartPol-v1")
    assert "card" not in repr(us.load_expert("CartPole-v1"))


def test_a_learner_asks_the_bundled_expert_on_the_page_and_from_the_shell(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names, said = {}, []
    exec(code, names | {"print": said.append}, names)
    assert said == [us.load_expert("CartPole-v1").about["card"]["return"]]
    assert names["result"].history["queries"][0, -1] > 0
    small = "--episodes 5 --rounds 2 --episodes-per-round 1 --steps 100 --hidden 32"
    assert understudy(f"train dagger --env CartPole-v1 --expert bundled {small}", monkeypatch) == 0
    assert us.load_run("runs/dagger").history["queries"][0, -1] > 0


def test_the_pages_table_is_the_cards():
    for name in bundled_experts():
        card = us.load_expert(name).about["card"]
        steps = card["settings"]["rounds"] * card["settings"]["round_steps"]
        score = f"{card['return']['mean']:.1f} ± {card['return']['std']:.1f}"
        shown = "its script's" if name == "Pendulum" else f"{us.load(name).expert_return.mean:.1f}"
        cells = [name, card["player"]["class"], f"{steps:,}", score, len(card["seeds"]), shown]
        assert f"| {' | '.join(map(str, cells))} |" in PAGE


def test_an_expert_is_recorded_without_chance_or_with_noise():
    still = us.collect("CartPole-v1", episodes=2, seed=3)
    np.testing.assert_array_equal(still.lengths, [500, 500])
    np.testing.assert_array_equal(us.load_expert("CartPole-v1")(still.observations), still.actions)
    wild = us.collect("CartPole-v1", episodes=20, seed=3, noise=1.0)
    assert wild.lengths.mean() < 60  # any action, every time
    swings = us.collect("Pendulum", "scripted", episodes=2, deterministic=True)
    shaken = us.collect("Pendulum", "scripted", episodes=2, deterministic=True, noise=0.1)
    np.testing.assert_array_equal(swings.observations[0], shaken.observations[0])
    moved = us.make("Pendulum").expert()
    inside = np.abs(shaken.actions) < 2
    difference = (shaken.actions - moved.mode(moved.reset(np.random.default_rng(0)), shaken.observations))[inside]
    assert 0.1 < difference.std() < 0.25  # 0.1 of the half-range 2, where it is not cut off
    with pytest.raises(SettingError, match="noise is -1"):
        us.collect("Pendulum", episodes=1, noise=-1)


def test_plain_weights_are_the_mean_of_a_gaussian_and_only_of_networks_in_plain_coordinates():
    spec, random = us.make("Pendulum").spec, np.random.default_rng(1)
    shapes = ((3, 8), (8, 2), (8,), (2,))
    *weights, bias, last = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    gaussian = Gaussian(MLP(tuple(weights), (bias, last), "relu"))
    frame = Normalization(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(1, np.float32), np.full(1, 2, np.float32)
    )
    actor = us.Actor(Normalized(gaussian, frame), spec)
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
    held = us.Actor(Normalized(StateDependent.init(net, -3.0, 64), frame), spec)
    assert plain_weights(held)["clip"] == 2.0
    assert np.abs(held(OBS)).max() == pytest.approx(2 * np.tanh(2.0))  # it is clipped somewhere
    np.testing.assert_allclose(us.policy_from_weights(plain_weights(held), "Pendulum")(OBS), held(OBS), atol=1e-6)
    moved = Normalization(frame.obs_mean + 1, frame.obs_std, frame.act_center, frame.act_scale)
    assert plain_weights(us.Actor(Normalized(gaussian, moved), spec)) is None
    assert plain_weights(us.Actor(us.make("Pendulum").expert(), spec)) is None
