"""Rollouts as images: a GIF of tasks that can be rendered, a PNG of flights through the forest.

Pillow, a dependency of matplotlib, writes the GIFs.
"""

import io
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from understudy.collect.rollouts import rollout
from understudy.envs import Environment, Forest, GymnasiumEnvironment, Pendulum, make_unfinished
from understudy.envs.output import redirected
from understudy.envs.stepping import CheckedEnv
from understudy.evaluation import drawing
from understudy.evaluation.returns import completed
from understudy.policies.actor import Actor, check_fits

FRAMES = 60
"""Largest number of frames in a clip."""
STEPS = 240
"""Largest number of environment steps in a clip."""
SIDE = 320
"""Longer side of a clip in pixels."""
SECOND = 1000
"""Milliseconds."""
FLIGHTS = 8
"""Episodes in the picture of a forest."""


def clip(actor: Actor, env: Any, seed: int = 0) -> bytes | None:
    """A GIF or PNG of a rollout; None if the task cannot be rendered."""
    environment = completed(make_unfinished(env), actor)
    check_fits(actor, environment)
    if isinstance(environment, GymnasiumEnvironment):
        frames, frame_ms = _gymnasium_frames(actor, environment, seed)
        return _gif(frames, frame_ms) if frames else None
    return _jax_image(actor, environment, seed)


def _jax_image(actor: Actor, env: Environment, seed: int) -> bytes | None:
    if isinstance(env, Forest):
        picture, (axis,) = drawing.figure(1)
        flights = rollout(env, actor.policy, FLIGHTS, seed)
        drawing.draw_forest(axis, env, [flights], drawing.LEARNER, "")
        return _png(picture)
    if isinstance(env, Pendulum):
        steps = rollout(env, actor.policy, 1, seed).steps.obs[0]
        return _gif(list(_pendulum(steps[:STEPS:3])), 3 * SECOND // 20)
    return None


def _pendulum(observations: np.ndarray) -> Iterator[np.ndarray]:
    """A frame for each observation (cos θ, sin θ, θ̇), with the upright position at the top."""
    picture, (axis,) = drawing.figure(1, width=2.4, height=2.4)
    (rod,) = axis.plot([], [], color=drawing.LEARNER, linewidth=7, solid_capstyle="round")
    axis.plot(0, 0, marker="o", color="#333333", markersize=6)
    axis.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axis.axis("off")
    for cos, sin, _ in observations:
        rod.set_data([0, -sin], [0, cos])
        picture.canvas.draw()
        yield np.asarray(picture.canvas.buffer_rgba())[..., :3].copy()


def _gymnasium_frames(actor: Actor, env: GymnasiumEnvironment, seed: int) -> tuple[list[np.ndarray], int]:
    """Evenly spaced frames of one episode and the milliseconds between them; none if the task cannot be rendered."""
    raw = env.make_renderable()
    if raw is None:
        return [], 0
    one = CheckedEnv(env.name, lambda: raw)
    frames, state, every = [], None, max(1, min(env.spec.horizon, STEPS) // FRAMES)
    with redirected(env.quiet):
        try:
            obs = one.reset(seed)
            for t in range(min(env.spec.horizon, STEPS)):
                if t % every == 0:
                    frame = _frame(raw)
                    if frame is None:
                        return [], 0
                    frames.append(frame)
                action, state = actor.predict(obs, state)
                obs, _, terminal, truncated = one.step(action.astype(one.action_kind))
                if terminal or truncated:
                    break
        finally:
            one.close()
    per_second = raw.metadata.get("render_fps") or 50
    return frames, max(20, int(every * SECOND / per_second))


def _frame(env: gymnasium.Env[Any, Any]) -> np.ndarray | None:
    """The current frame; None without a display or without the package that renders the task."""
    try:
        frame = env.render()
    except (gymnasium.error.Error, ImportError, OSError, RuntimeError):
        return None
    return frame if isinstance(frame, np.ndarray) else None


def _gif(frames: list[np.ndarray], frame_ms: int) -> bytes:
    from PIL import Image

    pictures = []
    for frame in frames:
        picture = Image.fromarray(np.ascontiguousarray(frame, np.uint8))
        picture.thumbnail((SIDE, SIDE))
        pictures.append(picture.quantize(64))
    file = io.BytesIO()
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=frame_ms, loop=0, optimize=True)
    return file.getvalue()


def _png(picture: Any) -> bytes:
    file = io.BytesIO()
    picture.savefig(file, dpi=110, format="png")
    return file.getvalue()
