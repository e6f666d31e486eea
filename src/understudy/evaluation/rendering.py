"""Pictures of a policy's episodes, one after the other.

A Gymnasium environment is drawn in another process: without OpenGL its renderer may raise, hang, or abort the process.
MuJoCo needs OpenGL without a display, from EGL or OSMesa; both are tried, unless MUJOCO_GL says which. Pygame draws
without a display. Forest and Pendulum are drawn here with Matplotlib.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any, NamedTuple

import numpy as np

from understudy.collect.rollouts import rollout
from understudy.collect.worker import STEP_TIMEOUT, Worker, unsendable
from understudy.core.errors import RenderError, SpecError, WorkerError
from understudy.envs import Environment, Forest, GymnasiumEnvironment, Pendulum
from understudy.envs.output import redirected
from understudy.envs.stepping import CheckedEnv, Report, no_report
from understudy.evaluation import drawing
from understudy.policies.actor import Actor

BATCH = 8
"""Steps that the other process takes for one message."""
OPENGL = "MUJOCO_GL"
BACKENDS = ("egl", "osmesa")
PENDULUM_STEPS, FOREST_STEPS = 20.0, 10.0
"""Steps in a second of a film."""


class Film(NamedTuple):
    """The frames of an episode, made when they are asked for, and how many of them are a second."""

    frames: Iterator[np.ndarray]
    """(height, width, 3) bytes, of the same size: one for each state."""
    per_second: float


def film(
    actor: Actor, env: Environment | GymnasiumEnvironment, seed: int = 0, step_timeout: float = STEP_TIMEOUT
) -> Film:
    """One deterministic episode as pictures. Raises RenderError if the environment cannot be drawn here."""
    if isinstance(env, GymnasiumEnvironment):
        return _gymnasium_film(actor, env, seed, step_timeout)
    if isinstance(env, Forest):
        return Film(_forest_frames(actor, env, seed), FOREST_STEPS)
    if isinstance(env, Pendulum):
        return Film(_pendulum_frames(rollout(env, actor.policy, 1, seed).steps.obs[0]), PENDULUM_STEPS)
    raise RenderError(f"{env.name} cannot be drawn: of the environments in JAX, Pendulum and Forest can")


class RenderService:
    """What the other process holds: an environment that is drawn, and the policy that acts in it."""

    def __init__(self, env: GymnasiumEnvironment, report: Report = no_report):
        self._copy: CheckedEnv
        self._copy, self._per_second = env.renderable(report)
        self.quiet, self._horizon = env.quiet, env.spec.horizon
        self._actor: Actor | None = None
        self._state: Any = None
        self._obs = np.zeros(0, np.float32)
        self._left = 0

    def per_second(self) -> float:
        return self._per_second

    def start(self, actor: Actor, seed: int) -> np.ndarray:
        """Start an episode; returns the first picture."""
        self._actor, self._state, self._left = actor, None, self._horizon
        self._obs = self._copy.reset(seed)
        return self._copy.render()

    def frames(self, steps: int) -> list[np.ndarray]:
        """The pictures after the next steps; fewer than `steps` at the end of the episode."""
        pictures: list[np.ndarray] = []
        assert self._actor is not None
        while len(pictures) < steps and self._left > 0:
            action, self._state = self._actor.predict(self._obs, self._state)
            done = self._copy.step(np.asarray(action).astype(self._copy.action_kind))
            self._obs, self._left = done.obs, 0 if done.terminal or done.truncated else self._left - 1
            pictures.append(self._copy.render())
        return pictures

    def close(self) -> None:
        self._copy.close()


def _gymnasium_film(actor: Actor, env: GymnasiumEnvironment, seed: int, step_timeout: float) -> Film:
    """The first frame is drawn at once, so that an environment that cannot be drawn is an error here."""
    if unsendable(env):
        with redirected(env.quiet):
            service = RenderService(env)
            first = service.start(actor, seed)
        return Film(_frames(service, first), service.per_second())
    with_mujoco = "mujoco" in sys.modules  # this process has made the environment before, to see its spaces
    backends = [os.environ[OPENGL]] if os.environ.get(OPENGL) else list(BACKENDS)
    failures = []
    for backend in backends if with_mujoco else backends[:1]:
        worker = _RemoteService(env, step_timeout, backend)
        try:
            return Film(_frames(worker, worker.start(actor, seed)), worker.per_second())
        except (WorkerError, SpecError, RenderError) as error:
            worker.close()
            failures.append(f"{OPENGL}={backend}: {error}" if with_mujoco else str(error))
        except BaseException:
            worker.close()
            raise
    reasons = "; ".join(failures)
    raise RenderError(f"{env.name} cannot be drawn without OpenGL: {reasons}" if with_mujoco else reasons)


class _RemoteService:
    """A `RenderService` in another process."""

    def __init__(self, env: GymnasiumEnvironment, step_timeout: float, backend: str):
        variables = {"SDL_VIDEODRIVER": os.environ.get("SDL_VIDEODRIVER", "dummy"), OPENGL: backend}
        self._worker = Worker(env.name, step_timeout, RenderService, env, variables=variables)

    def per_second(self) -> float:
        return float(self._worker.call("per_second"))

    def start(self, actor: Actor, seed: int) -> np.ndarray:
        first: np.ndarray = self._worker.call("start", actor, seed)
        return first

    def frames(self, steps: int) -> list[np.ndarray]:
        pictures: list[np.ndarray] = self._worker.call("frames", steps)
        return pictures

    def close(self) -> None:
        self._worker.close()


def _frames(service: RenderService | _RemoteService, first: np.ndarray) -> Iterator[np.ndarray]:
    with closing(service):
        yield first
        while True:
            with redirected(service.quiet) if isinstance(service, RenderService) else nullcontext():
                try:
                    pictures = service.frames(BATCH)
                except WorkerError as error:
                    raise RenderError(str(error)) from error
            for picture in pictures:
                if picture.shape != first.shape:
                    raise RenderError(
                        f"pictures have the sizes {first.shape[:2]} and {picture.shape[:2]}: one is needed"
                    )
                yield picture
            if len(pictures) < BATCH:
                return


def _pendulum_frames(observations: np.ndarray) -> Iterator[np.ndarray]:
    """A frame for each observation (cos θ, sin θ, θ̇), with the upright position at the top."""
    picture, (axis,) = drawing.figure(1, width=2.4, height=2.4)
    (rod,) = axis.plot([], [], color=drawing.LEARNER, linewidth=7, solid_capstyle="round")
    axis.plot(0, 0, marker="o", color="#333333", markersize=6)
    axis.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axis.axis("off")
    for cos, sin, _ in observations:
        rod.set_data([0, -sin], [0, cos])
        yield _pixels(picture)


def _forest_frames(actor: Actor, env: Forest, seed: int) -> Iterator[np.ndarray]:
    """The forest from above, with the flight so far, and a cross where the drone hits a tree."""
    flight = rollout(env, actor.policy, 1, seed)
    length = int(flight.lengths[0])
    obs = np.concatenate([flight.steps.obs[0, :length], flight.steps.next_obs[0, length - 1 : length]])
    forest = env if env.trees.ndim == 2 else Forest(env.trees[int(obs[0, -1])])
    picture, (axis,) = drawing.figure(1)
    drawing.draw_forest(axis, forest, [], drawing.LEARNER, "")
    (line,) = axis.plot([], [], color=drawing.LEARNER, linewidth=1.6)
    (drone,) = axis.plot([], [], marker="o", color=drawing.LEARNER, markersize=5)
    for step in range(1, length + 1):
        line.set_data(obs[:step, 1], obs[:step, 2])
        drone.set_data(obs[step - 1 : step, 1], obs[step - 1 : step, 2])
        yield _pixels(picture)
    drone.set_data([], [])
    drawing.draw_forest(axis, forest, [flight], drawing.LEARNER, "")
    yield _pixels(picture)


def _pixels(picture: Any) -> np.ndarray:
    picture.canvas.draw()
    return np.asarray(picture.canvas.buffer_rgba())[..., :3].copy()
