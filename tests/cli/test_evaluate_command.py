"""`understudy evaluate`: what it prints and writes."""

import csv

import pytest

import understudy as us


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "bc"
    settings = {"rounds": 1, "gradient_steps": 1, "hidden": (4,)}
    us.imitate(us.bc(**settings), us.load("Forest", episodes=3), seeds=2, progress=False).save(directory)
    return directory


def test_evaluate_prints_and_writes_the_gap_from_the_same_starts(run, understudy, tmp_path):
    words = ["evaluate", str(run), "--episodes", "4", "--out", "scores.csv"]
    status, out, _ = understudy(*words, "--expert", "scripted")
    assert status == 0
    assert "Student's t over 2 seeds, 4 episodes each" in out
    assert "acted from the same starting states" in " ".join(out.split())
    with (tmp_path / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["expert_source"] for row in rows} == {"same starts"}
    assert all(float(row["mean_length"]) > 0 and 0 <= float(row["success_rate"]) <= 1 for row in rows)
    status, out, _ = understudy(*words)
    assert "recorded in the demonstrations (3 episodes with other starting states)" in " ".join(out.split())
    with (tmp_path / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["expert_source"] for row in rows} == {"demonstrations"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--expert", "nobody"], "unknown expert 'nobody'"),
        (["--expert-activation", "relu"], "--expert-activation is for an expert: pass --expert too"),
        (["--expert", "bundled"], "Forest"),
    ],
)
def test_an_expert_that_cannot_act_is_one_line(run, understudy, options, message):
    status, _, err = understudy("evaluate", str(run), "--episodes", "2", *options)
    assert status == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_certificate_prints_one_block_for_the_selected_policy(run, understudy):
    status, out, _ = understudy("evaluate", str(run), "--episodes", "6", "--expert", "scripted", "--certificate")
    text = " ".join(out.split())
    assert status == 0
    assert "Certificates of episodes3-seed" in text
    for moments in ("reward", "off-Q", "on-Q"):
        assert f"{moments} moments: the gap is at most" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--certificate"], "pass --fresh FILE, or --expert"),
        (["--fresh", "Forest"], "pass --certificate too"),
        (["--certificate", "--fresh", "Pendulum"], "pass demonstrations of its own task"),
        (["--certificate", "--expert", "scripted", "--episodes", "2"], "episodes is 2"),
    ],
)
def test_a_certificate_that_cannot_be_made_is_one_line(run, understudy, options, message):
    status, _, err = understudy("evaluate", str(run), "--episodes", "3", *options)
    assert status == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
