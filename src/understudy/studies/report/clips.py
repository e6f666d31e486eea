"""A rollout to look at: a short clip where the task draws itself, a picture where a still says more.

Pillow writes the clips; matplotlib brings it along.
"""

import io
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from understudy.collect.rollouts import rollout
from understudy.envs import Environment, Forest, GymnasiumEnvironment, Pendulum, make
from understudy.envs.gymnasium import quiet
from understudy.evaluation import drawing as figures
from understudy.policies.actor import Actor, check_fits

FRAMES = 60
"""At most, in a clip."""
STEPS = 240
"""Environment steps that a clip covers, at most."""
SIDE = 320
"""Its longer side, in pixels."""
SECOND = 1000
FLIGHTS = 8
"""In the picture of a forest."""


def clip(actor: Actor, env: Any, seed: int = 0) -> bytes | None:
    """A GIF or PNG of a policy at work; None where the task cannot be drawn."""
    made = make(env)
    check_fits(actor, made)
    if isinstance(made, GymnasiumEnvironment):
        frames, pause = _hosted(actor, made, seed)
        return _gif(frames, pause) if frames else None
    return _own(actor, made, seed)


def _own(actor: Actor, env: Environment, seed: int) -> bytes | None:
    if isinstance(env, Forest):
        picture, (axis,) = figures.figure(1)
        flights = rollout(env, actor.policy, FLIGHTS, seed)
        figures.draw_forest(axis, env, [flights], figures.LEARNER, "")
        return _png(picture)
    if isinstance(env, Pendulum):
        steps = rollout(env, actor.policy, 1, seed).steps.obs[0]
        return _gif(list(_pendulum(steps[:STEPS:3])), 3 * SECOND // 20)
    return None


def _pendulum(observations: np.ndarray) -> Iterator[np.ndarray]:
    """A rod for each observation (cos θ, sin θ, θ̇); upright is up."""
    picture, (axis,) = figures.figure(1, width=2.4, height=2.4)
    (rod,) = axis.plot([], [], color=figures.LEARNER, linewidth=7, solid_capstyle="round")
    axis.plot(0, 0, marker="o", color="#333333", markersize=6)
    axis.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axis.axis("off")
    for cos, sin, _ in observations:
        rod.set_data([0, -sin], [0, cos])
        picture.canvas.draw()
        yield np.asarray(picture.canvas.buffer_rgba())[..., :3].copy()


def _hosted(actor: Actor, env: GymnasiumEnvironment, seed: int) -> tuple[list[np.ndarray], int]:
    """Frames of one episode, evenly spaced, and the milliseconds between them; none where the task draws nothing."""
    one = env.drawn()
    if one is None:
        return [], 0
    frames, state, every = [], None, max(1, min(env.spec.horizon, STEPS) // FRAMES)
    with quiet():
        try:
            obs, _ = one.reset(seed=seed)
            for t in range(min(env.spec.horizon, STEPS)):
                if t % every == 0:
                    frame = _frame(one)
                    if frame is None:
                        return [], 0
                    frames.append(frame)
                action, state = actor.predict(np.asarray(obs, np.float32).reshape(-1), state)
                chosen = np.asarray(action, one.action_space.dtype).reshape(one.action_space.shape)
                obs, _, terminal, truncated, _ = one.step(chosen)
                if terminal or truncated:
                    break
        finally:
            one.close()
    per_second = one.metadata.get("render_fps") or 50
    return frames, max(20, int(every * SECOND / per_second))


def _frame(env: gymnasium.Env[Any, Any]) -> np.ndarray | None:
    """What a task looks like now; None where it has no display, or not the package that draws it."""
    try:
        frame = env.render()
    except (gymnasium.error.Error, ImportError, OSError, RuntimeError):
        return None
    return frame if isinstance(frame, np.ndarray) else None


def _gif(frames: list[np.ndarray], pause: int) -> bytes:
    from PIL import Image

    pictures = []
    for frame in frames:
        picture = Image.fromarray(np.ascontiguousarray(frame, np.uint8))
        picture.thumbnail((SIDE, SIDE))
        pictures.append(picture.quantize(64))
    file = io.BytesIO()
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=pause, loop=0, optimize=True)
    return file.getvalue()


def _png(picture: Any) -> bytes:
    file = io.BytesIO()
    picture.savefig(file, dpi=110, format="png")
    return file.getvalue()
