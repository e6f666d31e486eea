"""`understudy export` and `understudy publish`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

import understudy as us
from support.fuzzing import make_policies
from understudy.train.publishing import publish


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    learner = us.bc(rounds=1, gradient_steps=5, hidden=(8,))
    path = tmp_path_factory.mktemp("run") / "clones"
    us.imitate(learner, "Pendulum", episodes=2, seeds=2).save(path)
    return path


def test_a_run_is_exported_to_each_kind(understudy, run, tmp_path):
    status, out, err = understudy("export", str(run))
    assert (status, err) == (0, "")
    assert "equal to the last bit" in out
    assert {path.name for path in (tmp_path / "exports/clones-numpy").iterdir()} == {"policy.py", "policy.npz"}
    status, out, _ = understudy("export", str(run), "--to", "onnx", "--max-change", "0.5")
    assert status == 0
    assert "of the action range at most" in out
    assert "'last_action': last_action" in out
    assert (tmp_path / "exports/clones.onnx").is_file()
    assert understudy("export", str(run), "--to", "jax", "--out", "j", "--policy", "episodes2-seed1")[0] == 0
    assert json.loads((tmp_path / "j/policy.json").read_text())["about"]["seed"] == 1
    assert understudy("export", str(run / "policies/episodes2-seed0.npz"), "--out", "file")[0] == 0
    assert us.deploy.load("file").about["seed"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no policy at 'nothing'"),
        (["RUN", "--policy", "seed7"], "unknown policy 'seed7'"),
        (["RUN", "--max-change", "0"], "max_change is [0.0]"),
        (["RUN", "--out", "RUN"], "already holds a run"),
        (["RUN", "--to", "onnx", "--out", "."], "is a directory"),
    ],
)
def test_a_mistake_is_one_line(understudy, run, words, message):
    status, _, err = understudy("export", *(word.replace("RUN", str(run)) for word in words))
    assert status == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_published_directory_can_be_used_by_a_stranger(understudy, run, tmp_path):
    words = ("publish", str(run), "--out", "hub", "--episodes", "2", "--license", "mit", "--max-change", "1")
    status, out, err = understudy(*words)
    assert (status, err) == (0, "")
    assert "README.md, policy.py, policy.npz, config.json" in out
    text = (tmp_path / "hub/README.md").read_text(encoding="utf-8")
    card = ModelCard(text)
    assert (card.data.library_name, card.data.license) == ("understudy", "mit")
    assert {"imitation-learning", "bc", "Pendulum"} <= set(card.data.tags)
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_type) == ("Pendulum", "mean_reward")
    config = json.loads((tmp_path / "hub/config.json").read_text())
    digest = us.load_run(run).config["demonstrations"]["digest"]
    assert digest in text
    assert "`3 float32 numbers`" in text
    assert config["export"]["demonstrations"]["digest"] == digest
    assert config["evaluation"]["episodes"] == 2
    assert understudy(*words)[0] == 2
    assert understudy(*words, "--replace")[0] == 0
    (block,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    code = f"import numpy as np\nobservation = np.ones(3)\n{block}\nprint(action.tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "hub", capture_output=True, text=True, check=True
    )
    np.testing.assert_array_equal(np.array(json.loads(done.stdout), np.float32), us.load_policy(run)(np.ones(3)))


def test_an_expert_directory_is_published_with_its_card(understudy, tmp_path):
    (tmp_path / "e").mkdir()
    us.load_expert("Pendulum").save("e/policy.npz")
    card = (Path(us.__file__).parent / "data/experts/Pendulum.json").read_text(encoding="utf-8")
    (tmp_path / "e/card.json").write_text(card, encoding="utf-8")
    assert understudy("publish", "e", "--out", "hub")[0] == 0
    text = (tmp_path / "hub/README.md").read_text(encoding="utf-8")
    assert "understudy expert train Pendulum" in text
    assert "return after training" in text


def test_text_of_strangers_cannot_leave_its_place(tmp_path):
    actor = us.load_policy(make_policies(tmp_path)[0])
    hostile = 'x"\n---\n# <script>`|![a](javascript:b)\x1b[31m'
    about = {"algorithm": hostile, "env": hostile, "seed": hostile, "episodes": [hostile]}
    training = {"command": hostile, "versions": {hostile: hostile}, "algorithm": {"name": hostile, "title": hostile}}
    publish(us.Actor(actor.policy, actor.spec, about), tmp_path / "hub", training=training)
    text = (tmp_path / "hub/README.md").read_text(encoding="utf-8")
    front = text.split("---\n")[1]
    assert yaml.safe_load(front)["tags"][-1].startswith('x" --- #')
    assert [line for line in text.split("\n") if line.startswith("# ")] == [text.split("---\n")[2].split("\n")[1]]
    assert text.replace("\n", "").isprintable()
    outside = [part for line in text.split("---\n", 2)[2].split("\n") for part in line.split("`")[::2]]
    assert not any("<script>" in part or "javascript" in part for part in outside)


@pytest.mark.parametrize("command", ["export", "export --to onnx", "export --to jax", "publish"])
def test_a_second_export_says_how_to_replace_the_first(understudy, run, command):
    name, *options = command.split()
    words = [name, str(run), *options, "--out", "old.onnx" if "onnx" in command else "old"]
    assert understudy(*words)[0] == 0
    status, _, err = understudy(*words)
    assert (status, err.count("\n"), "--replace" in err) == (2, 1, True)
    assert understudy(*words, "--replace")[0] == 0


def test_a_limit_for_each_action_says_how_many_there_are(understudy, run):
    status, _, err = understudy("export", str(run), "--max-change", "1", "2", "3")
    assert (status, "each of the 1 action dimensions" in err) == (2, True)
