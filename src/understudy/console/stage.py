"""The stage: one environment that is stepped and drawn in a process of its own, and the policy that acts in it.

An episode is a function of its seed and its actions. So undoing, and continuing after a crash of the server, replay it
from the start; `Replayed.same` says whether the environment came to the same states.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from understudy.collect.worker import Worker, unsendable
from understudy.core.errors import RenderError, SpecError, UnderstudyError, WorkerError
from understudy.envs import Environment, Forest, GymnasiumEnvironment, Pendulum
from understudy.envs.output import redirected
from understudy.envs.stepping import Report, StepResult, no_report
from understudy.evaluation.pictures import Painter, encoded
from understudy.evaluation.rendering import BACKENDS, FOREST_STEPS, OPENGL, PENDULUM_STEPS
from understudy.policies.actor import Actor, check_fits, read_policy

LARGEST = (480, 360)
"""Pixels of a picture."""
MOST_CLIP = 2000
"""Steps of a clip."""
TOLERANCE = 1e-4
JAX_STEPS = 20.0
"""Steps per second of an environment in JAX that has no picture of its own."""


class About(NamedTuple):
    """How the environment is drawn."""

    picture: str
    """rendered, drawn or numbers."""
    note: str
    fps: float


class Moment(NamedTuple):
    """The state after a step, or at the start."""

    obs: np.ndarray
    reward: float
    terminal: bool
    over: bool
    """The episode ends here, by termination or truncation."""
    action: Any
    """The action that was taken; None at the start."""
    policy_action: Any
    """What the policy does in this state; None without a policy."""
    picture: bytes | None


class Replayed(NamedTuple):
    moments: list[Moment]
    same: bool


class Clip(NamedTuple):
    """The pictures of an episode: one for each state."""

    pictures: list[bytes]
    total: float
    terminal: bool
    note: str


class _Simulator(Protocol):
    def reset(self, seed: int) -> np.ndarray: ...

    def step(self, action: Any) -> StepResult: ...

    def picture(self, path: Sequence[np.ndarray], terminal: bool) -> bytes: ...

    def close(self) -> None: ...


class StageService:
    """What the other process holds. `render=False`: a view of the numbers, whatever the environment can draw."""

    def __init__(self, env: Environment | GymnasiumEnvironment, render: bool = True, report: Report = no_report):
        self._env, self._note = env, ""
        self._simulator: _Simulator
        if isinstance(env, Environment):
            self._simulator = _JaxSimulator(env)
            rates = {Forest: FOREST_STEPS, Pendulum: PENDULUM_STEPS}
            self._about = About(self._simulator.painter.kind, "", rates.get(type(env), JAX_STEPS))
        else:
            self._simulator, self._about = _gymnasium(env, render, report)
        self._actor: Actor | None = None
        self._carry: Any = None
        self._path: list[np.ndarray] = []
        self._terminal = False
        self._chosen: Any = None

    def about(self) -> About:
        return self._about

    def start(self, seed: int, policy: str | None, draw: bool = True) -> Moment:
        """Start an episode. `policy` is the file of the policy that acts where the person does not."""
        self._actor, self._carry = None if policy is None else self._read(policy), None
        self._path, self._terminal = [self._simulator.reset(seed)], False
        self._choose()
        picture = self._picture() if draw else None
        return Moment(self._path[0], 0.0, False, False, None, self._chosen, picture)

    def advance(self, action: Any, draw: bool = True) -> Moment:
        """Take one step with the person's action, or with the policy's if it is None."""
        taken = self._chosen if action is None else action
        if taken is None:
            raise SpecError("nobody acts: there is no policy, and the person holds no action")
        new = self._simulator.step(taken)
        self._path.append(new.obs)
        self._terminal = new.terminal
        over = new.terminal or new.truncated or len(self._path) > self._env.spec.horizon
        self._chosen = None
        if not over:
            self._choose()
        picture = self._picture() if draw or over else None
        return Moment(new.obs, float(new.reward), new.terminal, over, taken, self._chosen, picture)

    def picture(self) -> bytes:
        """The current state."""
        return self._picture()

    def replay(self, seed: int, policy: str | None, actions: Sequence[Any], seen: Sequence[np.ndarray]) -> Replayed:
        """Start again and take these actions. `seen` holds the observations after them, to compare."""
        moments = [self.start(seed, policy, draw=not len(actions))]
        for index, action in enumerate(actions):
            moments.append(self.advance(action, draw=index == len(actions) - 1))
            if moments[-1].over:
                break
        found = np.stack([moment.obs for moment in moments[1:]]) if len(moments) > 1 else np.zeros((0, 1))
        same = len(moments) == len(actions) + 1 and (not len(actions) or _close(found, np.stack(list(seen))))
        return Replayed(moments, same)

    def film(self, seed: int, policy: str) -> Clip:
        """One deterministic episode of a policy."""
        moment = self.start(seed, policy)
        pictures, total, count = [moment.picture or b""], 0.0, 0
        while not moment.over and count < MOST_CLIP:
            moment = self.advance(None)
            pictures.append(moment.picture or b"")
            total, count = total + moment.reward, count + 1
        return Clip(pictures, total, moment.terminal, "" if moment.over else f"the first {MOST_CLIP} steps")

    def film_again(
        self, seed: int, actions: np.ndarray, observations: np.ndarray, rewards: np.ndarray, terminal: bool
    ) -> Clip:
        """An episode that was collected without pictures: drawn from its observations, or by replaying its actions.

        `observations` has one more row than `actions`. If the environment does not come to the same states, the
        numbers are drawn.
        """
        total, ends = float(np.sum(rewards, dtype=np.float64)), len(actions)
        if self._about.picture == "rendered":
            replayed = self._drawn_again(seed, actions, observations)
            if replayed is not None:
                return Clip(replayed, total, terminal, "")
        painter = Painter(self._env)
        if painter.kind == "numbers":  # the ranges of the whole episode
            for row in observations:
                painter.draw([row])
        path = list(observations)
        drawn = (painter.draw(path[: t + 1], terminal and t == ends) for t in range(ends + 1))
        note = "" if self._about.picture != "rendered" else f"{self._env.name} did not come to the same states again"
        return Clip([encoded(picture, sharp=True) for picture in drawn], total, terminal, note)

    def close(self) -> None:
        self._simulator.close()

    def _drawn_again(self, seed: int, actions: np.ndarray, observations: np.ndarray) -> list[bytes] | None:
        moment = self.start(seed, None)
        pictures = [moment.picture or b""]
        for t, action in enumerate(actions):
            if not _close(moment.obs, observations[t]):
                return None
            moment = self.advance(action)
            pictures.append(moment.picture or b"")
        return pictures if _close(moment.obs, observations[-1]) else None

    def _choose(self) -> None:
        if self._actor is not None:
            chosen, self._carry = self._actor.predict(self._path[-1][None], self._carry)
            self._chosen = chosen[0] if np.ndim(chosen[0]) else int(chosen[0])
        else:
            self._chosen = None

    def _picture(self) -> bytes:
        return self._simulator.picture(self._path, self._terminal)

    def _read(self, policy: str) -> Actor:
        actor = read_policy(Path(policy))
        check_fits(actor, self._env)
        return actor


class _JaxSimulator:
    """A JAX environment, one compiled step at a time. Episode `seed` is that of `collect.rollouts` with one episode."""

    def __init__(self, env: Environment):
        self.painter = Painter(env)
        self._env, self._t = env, 0
        self._reset = jax.jit(lambda key: env.reset(key))  # a function: an environment with arrays has no hash
        self._step = jax.jit(lambda state, action, key, t: env.step(state, action, jax.random.fold_in(key, t)))
        self._state: Any = None
        self._key: Any = None

    def reset(self, seed: int) -> np.ndarray:
        start, self._key, _ = jax.random.split(jax.random.split(jax.random.key(seed), 1)[0], 3)
        self._state, obs = self._reset(start)
        self._t = 0
        return np.asarray(obs)

    def step(self, action: Any) -> StepResult:
        new = self._step(self._state, np.asarray(action), self._key, self._t)
        self._state, self._t = new.state, self._t + 1
        return StepResult(np.asarray(new.obs), float(new.reward), bool(new.terminal), False, None)

    def picture(self, path: Sequence[np.ndarray], terminal: bool) -> bytes:
        return encoded(self.painter.draw(path, terminal), sharp=True)

    def close(self) -> None:
        """There is nothing to close."""


class _GymnasiumSimulator:
    def __init__(self, env: GymnasiumEnvironment, copy: Any, painter: Painter | None):
        self._env, self._copy, self._painter = env, copy, painter

    def reset(self, seed: int) -> np.ndarray:
        with redirected(self._env.quiet):
            return np.array(self._copy.reset(seed))

    def step(self, action: Any) -> StepResult:
        with redirected(self._env.quiet):
            new = self._copy.step(np.asarray(action).astype(self._copy.action_kind))
        return StepResult(np.array(new.obs), *new[1:])

    def picture(self, path: Sequence[np.ndarray], terminal: bool) -> bytes:
        if self._painter is not None:
            return encoded(self._painter.draw(path, terminal), sharp=True)
        with redirected(self._env.quiet):
            return encoded(self._copy.render(), LARGEST)

    def close(self) -> None:
        self._copy.close()


def _gymnasium(env: GymnasiumEnvironment, render: bool, report: Report) -> tuple[_GymnasiumSimulator, About]:
    """The environment, drawn by itself if it can."""
    note = ""
    if render:
        try:
            copy, fps = env.renderable(report)
            with redirected(env.quiet):
                copy.reset(0)
                copy.render()
            return _GymnasiumSimulator(env, copy, None), About("rendered", "", fps)
        except (RenderError, SpecError, WorkerError) as error:
            note = str(error)
    copy = env.copy(report=report)
    return _GymnasiumSimulator(env, copy, Painter(env)), About("numbers", note, copy.frames_per_second)


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and bool(np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE))


def open_stage(env: Environment | GymnasiumEnvironment, step_timeout: float) -> tuple[Worker, About]:
    """A process with a `StageService`. MuJoCo is tried with EGL and with OSMesa, then without pictures."""
    reason = unsendable(env) if isinstance(env, GymnasiumEnvironment) else ""
    if reason:
        raise SpecError(f"{env.name} cannot be sent to another process ({reason}): put it in a module, module:function")
    given = os.environ.get(OPENGL)
    notes: list[str] = []
    with_mujoco = "mujoco" in sys.modules  # this process has made the environment before, to see its spaces
    for backend in [given] if given else BACKENDS if with_mujoco else BACKENDS[:1]:
        worker, about = _opened(env, step_timeout, backend, True, notes)
        if worker is not None and about is not None:
            if about.picture != "numbers" or not about.note or isinstance(env, Environment):
                return worker, about
            notes.append(about.note)
            worker.close()
    worker, about = _opened(env, step_timeout, given or BACKENDS[0], False, notes)
    if worker is None or about is None:
        raise WorkerError(notes[-1])
    return worker, about._replace(note=notes[-1] if notes else "")


def _opened(
    env: Environment | GymnasiumEnvironment, step_timeout: float, backend: str, render: bool, notes: list[str]
) -> tuple[Worker | None, About | None]:
    variables = {"SDL_VIDEODRIVER": os.environ.get("SDL_VIDEODRIVER", "dummy"), OPENGL: backend}
    worker = Worker(env.name, step_timeout, StageService, env, render, variables=variables)
    try:
        return worker, worker.call("about")
    except UnderstudyError as error:
        notes.append(str(error))
        worker.close()
        return None, None
    except BaseException:
        worker.close()
        raise
