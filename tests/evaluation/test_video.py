"""Videos of policies: files, and environments that cannot be drawn."""

import io
import itertools
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import understudy as us
from support import drawn
from understudy.core.errors import ExtraError, RenderError, RunError, SettingError, UnderstudyError, WorkerError
from understudy.core.notices import UnderstudyWarning
from understudy.evaluation.rendering import film
from understudy.evaluation.video import gif
from understudy.policies import deterministic_policy
from understudy.tabular.examples import cliff


def actor(env):
    return us.Actor(deterministic_policy(jax.random.key(0), env.spec, (4,)), env.spec)


@pytest.fixture
def pendulum():
    return us.Actor(us.Pendulum().expert(), us.Pendulum().spec)


def frames_of(path):
    with Image.open(path) as picture:
        return picture.n_frames


def test_a_gif_and_an_mp4_of_pendulum_are_written(pendulum, tmp_path, monkeypatch):
    pictures = [np.full((31, 44, 3), 20 * i, np.uint8) for i in range(10)]  # an odd size, which H.264 does not have
    monkeypatch.setattr("understudy.evaluation.rendering._pendulum_frames", lambda obs: iter(pictures))
    us.record_video(pendulum, "Pendulum", tmp_path / "a.gif", episodes=2)
    us.record_video(pendulum, "Pendulum", tmp_path / "folder/a.mp4")
    assert frames_of(tmp_path / "a.gif") == 20
    with pytest.raises(RunError, match="already exists"):
        us.record_video(pendulum, "Pendulum", tmp_path / "a.gif")
    us.record_video(pendulum, "Pendulum", tmp_path / "a.gif", replace=True)
    assert frames_of(tmp_path / "a.gif") == 10
    content = (tmp_path / "folder/a.mp4").read_bytes()
    assert content[4:8] == b"ftyp"
    assert b"moov" in content
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif", "folder"]


def test_pendulum_and_forest_are_drawn_step_by_step(pendulum):
    frames = film(pendulum, us.Pendulum()).frames
    first, second = next(frames), next(frames)
    assert first.dtype == np.uint8
    assert first.shape == second.shape
    assert (first != second).any()
    flight = list(film(us.Actor(us.Forest().expert(), us.Forest().spec), us.Forest(), seed=3).frames)
    assert 2 < len(flight) <= us.Forest().spec.horizon + 1
    assert all((a != b).any() for a, b in itertools.pairwise(flight))


@pytest.mark.parametrize("name", ["a.avi", "a", "a.png"])
def test_other_endings_are_refused(pendulum, tmp_path, name):
    with pytest.raises(SettingError, match=r"use \.mp4 or \.gif"):
        us.record_video(pendulum, "Pendulum", tmp_path / name)


def test_a_file_that_is_no_video_is_never_replaced(pendulum, tmp_path):
    (tmp_path / "a.gif").write_text("mine")
    for replace in (False, True):
        with pytest.raises(RunError, match="already exists"):
            us.record_video(pendulum, "Pendulum", tmp_path / "a.gif", replace=replace)
    assert (tmp_path / "a.gif").read_text() == "mine"


def test_an_mp4_without_ffmpeg_names_the_extra(pendulum, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ExtraError, match=r"understudy-il\[video\]"):
        us.record_video(pendulum, "Pendulum", tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())


def test_a_gymnasium_environment_is_drawn_in_another_process():
    env = us.make(drawn.Drawn, 10)
    frames, per_second = film(actor(env), env)
    assert per_second == 25
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 40, 80, 120, 160, 200]


def test_an_environment_that_cannot_be_sent_is_drawn_in_this_process():
    env = us.make(lambda: drawn.Drawn(), 10)
    assert len(list(film(actor(env), env).frames)) == 6


def test_an_environment_without_a_time_limit_is_drawn_with_the_horizon_of_the_policy(tmp_path):
    policy = actor(us.make(drawn.Drawn, 3))
    with pytest.warns(UnderstudyWarning, match="its episodes end after 3 steps"):
        us.record_video(policy, lambda: drawn.Drawn(), tmp_path / "a.gif")
    assert frames_of(tmp_path / "a.gif") == 4


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (drawn.Raising, r"raised RuntimeError: no OpenGL here in render\(\) after step 0"),
        (drawn.Aborting, r"ended by SIGABRT in render\(\)"),
        (drawn.Hanging, r"did not return from render\(\) .* within 0\.5 s"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_an_error_of_one_line(tmp_path, kind, message):
    env = us.make(kind, 10)
    with pytest.raises(RenderError, match=message) as raised:
        us.record_video(actor(env), env, tmp_path / "a.gif", step_timeout=0.5 if kind is drawn.Hanging else 60.0)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "message"),
    [(drawn.Text, "the text 'a picture' as a picture"), (drawn.Shrinking, r"sizes \(31, 44\) and \(30, 44\)")],
)
def test_what_is_no_picture_is_named(tmp_path, kind, message):
    env = us.make(lambda: kind(), 10)  # drawn in this process
    with pytest.raises(UnderstudyError, match=message):
        us.record_video(actor(env), env, tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_other_environments_in_jax_have_no_picture(tmp_path):
    finite = us.Finite.of(cliff(4))
    with pytest.raises(RenderError, match="cannot be drawn"):
        us.record_video(actor(finite), finite, tmp_path / "a.gif")


def test_both_kinds_of_opengl_are_tried_for_mujoco(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", object())
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    env = us.make(drawn.Drawn, 10)

    def failing(env, step_timeout, backend):
        return SimpleNamespace(start=lambda *_: fail(backend), close=lambda: None)

    def fail(backend):
        raise WorkerError(f"no {backend}")

    monkeypatch.setattr("understudy.evaluation.rendering._RemoteService", failing)
    with pytest.raises(RenderError, match="without OpenGL: MUJOCO_GL=egl: no egl; MUJOCO_GL=osmesa: no osmesa"):
        film(actor(env), env)


def test_a_gif_is_small_and_its_frames_are_shown_long_enough():
    made = gif([np.zeros((900, 600, 3), np.uint8), np.full((900, 600, 3), 255, np.uint8)], frame_ms=1)
    with Image.open(io.BytesIO(made)) as picture:
        assert max(picture.size) == 400
        assert picture.info["duration"] == 20


def test_a_missing_pygame_is_named_with_its_extra(monkeypatch, tmp_path):
    (tmp_path / "pygame.py").write_text("raise ModuleNotFoundError(\"No module named 'pygame'\", name='pygame')")
    monkeypatch.syspath_prepend(tmp_path)  # of the process that draws, too
    env = us.make("CartPole-v1")
    with pytest.raises(UnderstudyError, match=r"CartPole-v1 needs pygame to be drawn: pip install .*\[video\]"):
        us.record_video(actor(env), env, tmp_path / "a.gif")
