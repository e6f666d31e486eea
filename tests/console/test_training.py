"""A scripted person teaches: demonstrations, answers, corrections and comparisons, with training beside it."""

import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from support.console_client import Page, process, running
from understudy.console.rounds import read_round

SMALL = {"rounds": 3, "gradient_steps": 400, "episodes_per_round": 2, "hidden": (32, 32)}
EXPERT = us.Pendulum().expert()


def swing(obs: np.ndarray) -> list[float]:
    return np.asarray(EXPERT.mode(EXPERT.reset(np.random.default_rng(0)), obs)).tolist()


def answer_all(page: Page, act: Any = swing, most: int = 1000) -> int:
    """Answer the open questions; how many."""
    questions = [one for one in page.newest["questions"]["questions"] if one["status"] == "pending"][:most]
    for one in questions:
        page.ask(type="answer", question=one["question"], action=act(np.array(one["observation"], np.float32)))
    return len(questions)


def picture(page: Page, clip: str, number: int) -> bytes:
    address = f"http://127.0.0.1:{page.port}/frames/{clip}/{number}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {page.token}"})
    with urllib.request.urlopen(request) as answer:
        assert "immutable" in answer.headers["Cache-Control"]
        return answer.read()


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A console with two demonstrations and a first policy, and an open round of questions."""
    out = tmp_path_factory.mktemp("taught") / "out"
    demonstrations = us.load("Pendulum", episodes=2)
    with running("Pendulum", us.dagger(**SMALL), out, demonstrations, questions=6, budget=20) as url:
        with Page(url) as page:
            page.ask(type="train")
            page.trained()
            page.ask(type="train")
            page.trained("asking")
        yield url, out


@pytest.mark.slow
def test_questions_are_answered_skipped_changed_and_counted(taught: tuple[str, Path]) -> None:
    with Page(taught[0]) as page:
        page.until(lambda p: "questions" in p.newest)
        found = page.newest["questions"]
        assert (found["round"], found["open"], len(found["questions"])) == (2, True, 6)
        first, second, third, *_ = (one["question"] for one in found["questions"])
        page.ask(type="answer", question=first, action=[0.5])
        page.ask(type="skip", question=second)
        counts = page.state["questions"]
        assert [counts[key] for key in ("answered", "skipped", "pending", "spent", "budget")] == [1, 1, 4, 1, 20]
        page.ask(type="answer", question=first, action=[-0.5])  # a change is not a second answer
        page.ask(type="reopen", question=second)
        assert page.newest["question"]["status"] == "pending"
        assert page.state["questions"]["spent"] == 1
        assert page.refusal(type="answer", question="2-999999", action=[0.0]) == "wrong-field"
        assert page.refusal(type="answer", question="3-1", action=[0.0]) == "wrong-field"
        assert page.refusal(type="train") == "not-now"
        page.ask(type="reopen", question=first)
        page.ask(type="skip", question=third)
        page.ask(type="reopen", question=third)


@pytest.mark.slow
def test_a_question_has_a_picture_in_the_clip_of_its_episode(taught: tuple[str, Path]) -> None:
    with Page(taught[0]) as page:
        page.until(lambda p: "questions" in p.newest)
        found = page.newest["questions"]
        one = found["questions"][0]
        episode = found["episodes"][one["episode"]]
        page.ask(type="clip", clip=episode["clip"])
        page.until(lambda p: "clip" in p.newest)
        assert page.newest["clip"]["pictures"] == episode["steps"] + 1
        assert picture(page, episode["clip"], one["t"]).startswith(b"\xff\xd8")
        asked, _ = read_round(taught[1] / "rounds" / "0002.npz")
        row = int(one["question"].partition("-")[2])
        np.testing.assert_allclose(asked.steps.obs[row], one["observation"], rtol=1e-6)
        assert asked.steps.t[row] == one["t"]


@pytest.mark.slow
def test_a_person_teaches_pendulum_with_answers_and_corrections(tmp_path: Path) -> None:
    out = tmp_path / "out"
    returned: list[Any] = []
    options = {"questions": 20, "seed": 1}
    algorithm = us.dagger(**{**SMALL, "rounds": 2, "gradient_steps": 1500, "episodes_per_round": 5})
    opened, found = threading.Event(), list[str]()

    def target() -> None:
        def ready(url: str) -> None:
            found.append(url)
            opened.set()

        returned.append(us.console("Pendulum", algorithm, out, port=0, browser=False, ready=ready, **options))

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    assert opened.wait(120)
    with Page(found[0]) as page:
        assert page.refusal(type="train") == "not-now"  # nothing to learn from yet
        for seed in (1, 2, 3):
            assert page.drive(swing, seed=seed) == 200
            page.ask(type="keep")
        page.ask(type="train")
        page.trained()
        for _ in range(2):  # one round more than the algorithm plans
            page.ask(type="train")
            page.trained("asking")
            answer_all(page)
            page.trained()
        rounds = page.newest["curves"]["rounds"]
        assert [one["round"] for one in rounds] == [1, 2, 3]
        assert rounds[-1]["answers"] == 40
        assert rounds[-1]["return"] > rounds[0]["return"] + 100  # the answers help
        # Take over from the policy, and hand back.
        page.ask(type="mode", mode="watch")
        page.ask(type="start", seed=9)
        for t, who in enumerate(["policy", "policy", "person", "person", "person", "policy"]):
            page.ask(type="take" if who == "person" else "hand-back")
            page.send(type="act", seq=t + 1, action=[0.25])
            page.ask(type="step")
        assert page.state["stage"]["interventions"] == 3
        page.ask(type="keep")
        assert page.state["training"]["new_data"]
        page.ask(type="train")  # on the correction, without a question
        page.until(lambda p: len(p.state["policies"]) == 4)
        assert page.state["policies"][-1]["round"] == 3
        assert page.newest["curves"]["rounds"][2]["interventions"] == 0.5
        # Compare two policies.
        page.ask(type="next-pair")
        pair = page.newest["pair"]
        assert pair["policies"] is None
        assert picture(page, pair["left"]["clip"], 0) == picture(page, pair["right"]["clip"], 0)  # the same start
        page.ask(type="prefer", pair=1, choice="left")
        winner = page.newest["pair"]["policies"][0]
        rate = next(one for one in page.state["comparisons"]["rates"] if one["policy"] == winner)
        assert (rate["wins"], rate["rate"], rate["high"]) == (1, 1.0, 1.0)
        assert 0.2 < rate["low"] < 0.21  # Wilson's interval of one win in one trial
        page.ask(type="end")
        assert page.closing() == 4000
    thread.join(120)
    result = returned[0]
    assert isinstance(result, us.Result)
    assert result.config["demonstrations"]["episodes"] == 4  # three demonstrations and one run of corrected steps
    episode = us.load(out / "episodes" / "000004.npz")
    assert episode.details.interventions.tolist() == [False, False, True, True, True, False]
    with np.load(out / "episodes" / "000004.npz") as file:
        assert file["policy_actions"].shape == (6, 1)
        np.testing.assert_array_equal(file["policy_actions"][:2], episode.actions[:2])
        np.testing.assert_array_equal(episode.actions[2:5], np.full((3, 1), 0.25))
        assert file["person_acted"].tolist() == episode.details.interventions.tolist()
    saved = us.load(out / "demonstrations.npz")  # all attempts, with their rewards
    assert (saved.episodes, saved.steps, saved.details.interventions.sum()) == (4, 606, 3)
    assert saved.rewards is not None


@pytest.mark.slow
def test_a_person_teaches_cartpole(tmp_path: Path) -> None:
    def balance(obs: np.ndarray) -> int:
        return int(obs[2] + 0.3 * obs[3] + 0.02 * obs[0] + 0.05 * obs[1] > 0)

    with (
        running("CartPole-v1", us.dagger(**SMALL), tmp_path / "out", questions=10, choose="spread") as url,
        Page(url) as page,
    ):
        assert page.newest["welcome"]["env"]["action"] == {"kind": "discrete", "n": 2, "names": ["0", "1"]}
        page.drive(balance, most=60)
        page.ask(type="keep")
        page.ask(type="train")
        page.trained()
        page.ask(type="train")
        page.trained("asking")
        assert answer_all(page, balance, 4) == 4
        page.ask(type="finish")
        page.trained()
        assert page.state["policies"][-1]["answers"] == 4
        clip = page.state["policies"][-1]["clip"]
        page.ask(type="clip", clip=clip)
        page.until(lambda p: "clip" in p.newest)
        assert page.newest["clip"]["return"] == page.newest["clip"]["pictures"] - 1
        episode = page.newest["questions"]["episodes"][0]
        page.newest.pop("clip")
        page.ask(type="clip", clip=episode["clip"])
        page.until(lambda p: "clip" in p.newest)
        assert page.newest["clip"]["pictures"] == episode["steps"] + 1
        assert page.newest["clip"]["note"] == ""  # the rendered episode came to the same states


@pytest.mark.slow
def test_an_algorithm_that_asks_nothing_learns_from_demonstrations(tmp_path: Path) -> None:
    algorithm = us.bc(rounds=2, gradient_steps=20, hidden=(8,))
    with running("Pendulum", algorithm, tmp_path / "out", "Pendulum") as url, Page(url) as page:
        assert page.newest["welcome"]["algorithm"]["asks"] is False
        page.ask(type="train")
        page.trained("idle")
        page.until(lambda p: p.state["saved"] is not None)
        assert len(page.state["policies"]) == 1
        page.ask(type="save")
    assert len(us.load_run(tmp_path / "out" / "run").policies) == 1


@pytest.mark.slow
def test_a_killed_server_continues_the_attempt_and_the_answers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = ("--gradient-steps", "50", "--episodes-per-round", "2", "--rounds", "3", "--hidden", "8")
    words = ("--env", "Pendulum", "--algorithm", "dagger", "--demos", "Pendulum", "--questions", "5", *settings)
    with process(out, *words) as (url, server), Page(url) as page:
        page.ask(type="train")
        page.trained()
        page.ask(type="train")
        page.trained("asking")
        before = page.newest["questions"]["questions"]
        page.ask(type="answer", question=before[0]["question"], action=[0.5])
        page.ask(type="skip", question=before[1]["question"])
        page.drive(lambda obs: [1.0], most=7, seed=5)
        page.ask(type="undo", steps=2)
        page.until(lambda p: p.newest["step"]["t"] == 5)
        last = page.newest["step"]["observation"]
        server.kill()
        server.wait()
    with process(out, *words) as (url, server), Page(url) as page:
        page.until(lambda p: "step" in p.newest)
        assert page.newest["step"]["t"] == 5  # the attempt goes on where it was
        assert page.newest["step"]["observation"] == last
        page.ask(type="step")
        page.ask(type="keep")
        assert us.load(out / "episodes" / "000001.npz").steps == 6
        assert [one["status"] for one in page.newest["questions"]["questions"][:3]] == [
            "answered",
            "skipped",
            "pending",
        ]
        page.ask(type="train")  # the new episode
        page.trained()
        page.ask(type="train")
        page.trained("asking")
        after = page.newest["questions"]["questions"]
        assert [one["question"] for one in after] == [one["question"] for one in before]  # none is asked twice
        assert [one["status"] for one in after] == ["answered", "skipped", "pending", "pending", "pending"]
        page.ask(type="answer", question=after[2]["question"], action=[0.0])
        page.ask(type="finish")
        page.until(lambda p: p.state["policies"][-1]["round"] == 2)
        assert page.state["policies"][-1]["answers"] == 2
        page.trained()
        page.ask(type="end")
        assert page.closing() == 4000
        assert server.wait(60) == 0
    assert us.load_run(out / "run").metrics["queries"][0].tolist() == [0, 2]


@pytest.mark.slow
def test_training_stops_at_once_and_keeps_its_rounds(taught: tuple[str, Path]) -> None:
    with Page(taught[0]) as page:
        page.until(lambda p: p.newest.get("role", p.newest["welcome"])["role"] == "control")
        page.ask(type="stop")
        assert page.state["training"]["status"] == "idle"
        assert page.refusal(type="stop") == "not-now"
        assert len(page.state["policies"]) == 1
        page.ask(type="save")
        assert page.state["saved"] == str(taught[1] / "run")
        assert len(us.load_run(taught[1] / "run").policies) == 1


@pytest.mark.slow
def test_an_attempt_outlives_the_process_of_its_environment(tmp_path: Path) -> None:
    with process(tmp_path / "out", "--env", "Pendulum") as (url, server), Page(url) as page:
        page.drive(lambda obs: [1.0], most=3, seed=1)
        tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        assert len(children) == 1
        os.kill(int(children[0]), signal.SIGKILL)
        assert page.refusal(type="step") == "failed"
        assert page.state["stage"]["status"] == "failed"
        assert page.state["stage"]["t"] == 3
        page.ask(type="step")  # in a new process, which repeats the three steps first
        page.until(lambda p: p.newest["step"]["t"] == 4)
        page.ask(type="keep")
        observations = us.load(tmp_path / "out" / "episodes" / "000001.npz").observations
        page.drive(lambda obs: [1.0], most=4, seed=1)
        page.ask(type="keep")
        again = us.load(tmp_path / "out" / "episodes" / "000002.npz").observations
        np.testing.assert_allclose(observations, again, rtol=1e-6)
