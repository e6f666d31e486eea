"""The server over its WebSocket: access, control, the stage, and what is on the disk."""

import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import understudy as us
from support.console_client import Page, running


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    out = tmp_path_factory.mktemp("console") / "out"
    with running("Pendulum", us.dagger.preset("quick"), out) as url:
        yield url, out


@pytest.fixture
def page(opened: tuple[str, Path]) -> Iterator[Page]:
    """The only client, with an empty stage in the mode demonstrate."""
    with Page(opened[0]) as client:
        client.until(lambda p: p.newest.get("role", p.newest["welcome"])["role"] == "control")
        client.ask(type="mode", mode="demonstrate")
        if client.state["stage"]["status"] != "idle":
            client.ask(type="discard")
        yield client


def get(page: Page, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def push(obs: np.ndarray) -> list[float]:
    return [1.0]


# Access


def test_the_token_opens_the_page_and_sets_a_cookie(page: Page) -> None:
    assert get(page, f"/?token={page.token}")[0] == 403  # the redirected request came without the cookie
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(f"http://127.0.0.1:{page.port}/?token={page.token}") as answer:
        assert answer.status == 200
        assert "token" not in answer.url
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert b"<script" in answer.read()


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/frames/x/0", "/?token=wrong", "/?token=", "/?token=%ff", "/nothing"]
)
def test_nothing_is_served_without_the_token(page: Page, path: str) -> None:
    assert get(page, path)[0] == 403


def test_the_token_may_be_a_header_and_other_files_are_not_served(page: Page) -> None:
    bearer = {"Authorization": f"Bearer {page.token}"}
    assert get(page, "/page.js", **bearer)[0] == 200
    for path in ("/server.py", "/../server.py", "/page.js/..", "/%2e%2e/protocol.py", "/frames/a/0", "/frames/a/-1"):
        assert get(page, path, **bearer)[0] == 404, path


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:{port}.evil.example"},
    ],
)
def test_another_origin_or_host_is_refused(page: Page, headers: dict[str, str]) -> None:
    given = {name: value.format(port=page.port) for name, value in headers.items()}
    assert get(page, "/page.js", Authorization=f"Bearer {page.token}", **given)[0] == 403


@pytest.mark.parametrize("options", [{"token": "wrong"}, {"origin": "http://evil.example"}, {"token": None}])
def test_a_socket_without_token_or_with_another_origin_is_refused(page: Page, options: dict[str, str]) -> None:
    token = options.get("token", page.token)
    address = f"ws://127.0.0.1:{page.port}/socket" + (f"?token={token}" if token else "")
    with pytest.raises(InvalidStatus) as refused:
        connect(address, origin=options.get("origin")).__enter__()
    assert refused.value.response.status_code == 403


def test_a_message_over_the_limit_closes_the_connection(page: Page) -> None:
    with Page(f"http://127.0.0.1:{page.port}/?token={page.token}") as other:
        other.socket.send('{"type": "step", "x": "' + "x" * 70_000 + '"}')
        assert other.closing() == 1009


def test_a_binary_message_closes_the_connection(page: Page) -> None:
    with Page(f"http://127.0.0.1:{page.port}/?token={page.token}") as other:
        other.socket.send(b"\x00\x01")
        assert other.closing() == 1003


def test_a_hundred_errors_in_a_row_close_the_connection(page: Page) -> None:
    with Page(f"http://127.0.0.1:{page.port}/?token={page.token}") as other:
        for _ in range(100):
            other.socket.send("nonsense")
        assert other.closing() == 1008


def test_a_refused_message_changes_nothing_and_the_connection_lives(page: Page) -> None:
    before = page.state
    page.socket.send("{")
    page.socket.send('{"type": "act", "seq": 1, "action": [NaN]}')
    page.socket.send('{"type": "open", "path": "/etc/passwd"}')
    page.until(lambda p: len(p.errors) == 3)
    assert [error["code"] for error in page.errors] == ["not-json", "not-json", "unknown-type"]
    assert page.refusal(type="keep") == "not-now"
    assert page.refusal(type="step") == "not-now"
    assert page.refusal(type="undo") == "wrong-field"
    assert page.state == before


# The stage


def test_the_first_picture_shows_the_start(page: Page) -> None:
    page.ask(type="start", seed=3)
    page.until(lambda p: "step" in p.newest and p.pictures and p.newest["step"]["t"] == 0)
    (kind, format_, flags, frame, t, seq, total), image = page.pictures[-1]
    assert (kind, format_, flags, t, seq, total) == (1, 1, 0, 0, 0, 0.0)
    assert frame == page.newest["step"]["frame"]
    assert Image.open(io.BytesIO(image)).size == (360, 360)


def test_steps_use_the_held_action(page: Page) -> None:
    page.drive(lambda obs: [1.5], most=3, seed=4)
    assert page.newest["step"]["action"] == [1.5]
    assert page.pictures[-1][0][5] == 3  # the newest `seq` that the step used
    page.until(lambda p: p.state["stage"]["t"] == 3)


def test_a_kept_attempt_is_a_file_of_demonstrations(page: Page, opened: tuple[str, Path]) -> None:
    steps = page.drive(push, most=5, seed=5)
    page.ask(type="success", success=True)
    page.ask(type="keep")
    newest = max((opened[1] / "episodes").glob("*.npz"))
    episode = us.load(newest)
    assert (episode.episodes, episode.steps, episode.env) == (1, steps, "Pendulum")
    assert episode.actions.tolist() == [[1.0]] * steps
    assert episode.details.successes.tolist() == [True]
    assert episode.details.interventions is None
    page.until(lambda p: p.state["stage"]["status"] == "idle")
    assert page.state["episodes"]["newest"][0]["steps"] == steps


def test_demonstrations_are_saved_in_one_file(page: Page, opened: tuple[str, Path]) -> None:
    page.drive(push, most=3)
    page.ask(type="keep")
    page.ask(type="save")
    assert page.state["saved"] == str(opened[1])
    saved = us.load(opened[1] / "demonstrations.npz")
    assert (saved.episodes, saved.steps) == (page.state["episodes"]["kept"], page.state["episodes"]["steps"])


def test_a_discarded_attempt_is_kept_apart(page: Page, opened: tuple[str, Path]) -> None:
    episodes = len(list((opened[1] / "episodes").glob("*.npz")))
    before = len(list((opened[1] / "discarded").glob("*.npz")))
    page.drive(push, most=2)
    page.ask(type="discard")
    assert len(list((opened[1] / "discarded").glob("*.npz"))) == before + 1
    assert len(list((opened[1] / "episodes").glob("*.npz"))) == episodes


def test_undo_goes_back_to_the_same_state(page: Page, opened: tuple[str, Path]) -> None:
    page.drive(push, most=4, seed=6)
    fourth = page.newest["step"]["observation"]
    for t in range(4, 9):
        page.ask(type="step")
        page.until(lambda p, t=t: p.newest["step"]["t"] == t + 1)
    page.ask(type="undo", steps=5)
    page.until(lambda p: p.newest["step"]["t"] == 4)
    assert page.newest["step"]["observation"] == fourth
    page.ask(type="step")
    page.ask(type="keep")
    assert us.load(max((opened[1] / "episodes").glob("*.npz"))).steps == 5
    written = [json.loads(line) for line in max((opened[1] / "attempts").glob("*.jsonl")).read_text().splitlines()]
    assert sum("action" in line for line in written) == 10  # what was undone is still in the file
    assert {"undo": 4} in written


def test_undo_of_more_than_there_is_goes_to_the_start(page: Page) -> None:
    page.drive(push, most=3)
    page.ask(type="undo", seconds=1000)
    page.until(lambda p: p.newest["step"]["t"] == 0)
    page.until(lambda p: p.state["stage"]["status"] == "paused")


def test_the_clock_runs_until_it_is_paused(page: Page) -> None:
    page.ask(type="start")
    page.ask(type="clock", running=True, rate=60)
    page.until(lambda p: p.newest.get("step", {}).get("t", 0) >= 10)
    page.ask(type="clock", running=False)
    page.until(lambda p: p.state["stage"]["status"] == "paused")
    reached = page.state["stage"]["t"]
    page.until(lambda p: p.newest["step"]["t"] == reached)  # the state that it stands at is shown
    time.sleep(0.2)
    page.ask(type="mode", mode="demonstrate")
    assert page.state["stage"]["t"] == reached


def test_a_client_that_draws_nothing_gets_two_pictures(page: Page) -> None:
    page.ask(type="start")
    page.until(lambda p: "step" in p.newest)
    page.acknowledge, before = False, len(page.pictures)
    page.ask(type="clock", running=True, rate=120)
    page.until(lambda p: p.state["stage"]["t"] > 60)
    assert len(page.pictures) - before <= 2
    page.acknowledge = True
    page.send(type="seen", frame=page.pictures[-1][0][3])
    page.until(lambda p: p.pictures[-1][0][4] > 60)  # then the newest, not the next
    page.ask(type="clock", running=False)


def test_an_episode_ends_at_the_horizon(page: Page) -> None:
    page.ask(type="start")
    page.ask(type="clock", running=True, rate=120)
    page.until(lambda p: p.state["stage"]["status"] == "ended")
    assert page.state["stage"]["t"] == 200
    assert page.refusal(type="step") == "not-now"
    assert page.refusal(type="start") == "not-now"  # an attempt with steps is not thrown away
    page.ask(type="discard")


def test_the_mapping_is_stored(page: Page, opened: tuple[str, Path]) -> None:
    mapping = {"bindings": [{"input": "key:KeyQ", "index": 0, "value": 0.5}], "rest": [0.25]}
    page.ask(type="mapping", mapping=mapping)
    with Page(opened[0]) as other:
        assert other.newest["welcome"]["mapping"] == mapping


# Two clients


def test_the_second_client_watches(page: Page, opened: tuple[str, Path]) -> None:
    with Page(opened[0]) as other:
        assert other.newest["welcome"]["role"] == "watch"
        assert other.refusal(type="start") == "watching"
        page.drive(push, most=2)
        other.until(lambda p: p.newest.get("step", {}).get("t") == 2)
        assert other.pictures


def test_control_is_taken_and_goes_back(page: Page, opened: tuple[str, Path]) -> None:
    other = Page(opened[0])
    other.ask(type="take-control")
    page.until(lambda p: p.newest.get("role", {}).get("role") == "watch")
    assert page.refusal(type="start") == "watching"
    other.ask(type="start")
    other.ask(type="clock", running=True)
    other.close()  # a lost connection
    page.until(lambda p: p.newest["role"]["role"] == "control")
    page.until(lambda p: p.state["stage"]["status"] == "paused")  # nobody drives: the clock stands
    page.ask(type="discard")


def test_a_reloaded_page_sees_everything(page: Page, opened: tuple[str, Path]) -> None:
    page.drive(push, most=3)
    page.close()
    with Page(opened[0]) as again:
        again.until(lambda p: p.newest.get("step", {}).get("t") == 3)
        assert again.state["stage"]["status"] == "paused"
        assert again.pictures
        again.until(lambda p: p.newest.get("role", p.newest["welcome"])["role"] == "control")
        again.ask(type="step")
        again.ask(type="discard")
