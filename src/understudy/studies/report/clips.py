"""Clips of a task: an episode of its best policy, or of every algorithm's, beside one of the expert.

A clip is a GIF of a task that can be drawn, or a PNG of flights through the forest. Its caption says whose it is. All
clips of a task begin in the same states.
"""

import io
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from understudy.collect.acting import acting_expert
from understudy.collect.rollouts import rollout
from understudy.core.errors import NeedsError, RenderError, UnderstudyError
from understudy.core.text import quoted
from understudy.envs import JAX_ENVIRONMENTS, Forest, make_unfinished
from understudy.evaluation import drawing
from understudy.evaluation.rendering import film
from understudy.evaluation.returns import completed
from understudy.evaluation.video import gif
from understudy.policies.actor import Actor, check_fits
from understudy.studies.cells import Store
from understudy.studies.plan import BUNDLED, Task
from understudy.studies.records import FINAL
from understudy.studies.report.comparisons import ranked
from understudy.studies.report.formatting import number, plural
from understudy.studies.report.learners import LearnerResults, TaskResults

FRAMES = 60
"""Largest number of frames in a clip."""
STEPS = 240
"""Largest number of environment steps in a clip."""
SIDE = 320
"""Longer side of a clip in pixels."""
FLIGHTS = 8
"""Episodes in the picture of a forest."""
STEP_TIMEOUT, SECONDS = 30.0, 120.0
"""Seconds that a step or a picture may take, and after which a clip ends early."""
LONGEST_REASON = 300
"""Characters of the reason why there is no clip."""


class Clip(NamedTuple):
    """A picture of a policy's episode, or the reason why there is none."""

    caption: str
    """Whose it is: algorithm, seed and return."""
    picture: bytes | str


def task_clips(task: Task, results: TaskResults, store: Store, every: bool = False) -> list[Clip]:
    """A clip of the best policy of the best learner, or of every one, and the expert's. No clip is worth a report."""
    learners = [one for one in ranked(results) if one.curve.final]
    clips = []
    for learner in learners if every else learners[:1]:
        seed = max(learner.curve.final, key=lambda one: learner.curve.final[one])
        record = next(record for record in learner.records if record["config"]["seed"] == seed)
        clips.append(_drawn(_caption(learner, seed), task, lambda key=record["key"]: store.load_policy(key)))
    if clips:
        clips.insert(1, _expert_clip(task, results, loaded_policy(store, results)))  # beside the best
    return clips


def clip(actor: Actor, env: Any, seed: int = 0, deterministic: bool = True, colour: str = drawing.LEARNER) -> bytes:
    """A GIF or PNG of a rollout. Raises RenderError if the task cannot be drawn here.

    Flights through the forest are drawn in `colour`, and are stochastic if the policy does not act deterministically.
    """
    environment = completed(make_unfinished(env), actor)
    check_fits(actor, environment)
    if isinstance(environment, Forest):
        picture, (axis,) = drawing.figure(1)
        flights = rollout(environment, actor.policy, FLIGHTS, seed, deterministic)
        drawing.draw_forest(axis, environment, [flights], colour, "")
        return _png(picture)
    every = max(1, min(environment.spec.horizon, STEPS) // FRAMES)
    frames, per_second = film(actor, environment, seed, STEP_TIMEOUT)
    return gif(islice(_in_time(frames), 0, STEPS, every), every * 1000 / per_second, SIDE)


def _caption(learner: LearnerResults, seed: int) -> str:
    final = learner.curve.final
    record = next(record for record in learner.records if record["config"]["seed"] == seed)
    episodes = next(len(row["returns"]) for row in record["evaluations"] if row["x_kind"] == FINAL)
    which = f"the best of {len(final)} seeds" if len(final) > 1 else "the only seed"
    returned = f"returns {number(final[seed])}, the mean of {plural(episodes, 'episode')}"
    return f"{learner.name}, seed {seed} ({which}): {returned}"


def expert_of(task: Task) -> str | None:
    """The expert of a task, for `as_expert`. None if it is only known by demonstrations from elsewhere."""
    if task.expert is not None:
        return task.expert
    if task.demos != BUNDLED:
        return None
    return "scripted" if task.env in JAX_ENVIRONMENTS else BUNDLED


def _expert_clip(task: Task, results: TaskResults, actor: Actor | None) -> Clip:
    """The clip of the task's expert, by default the environment's scripted or bundled one."""
    returned = "" if results.expert is None else f": its demonstrations return {number(results.expert)} on average"

    def expert() -> tuple[Actor, bool]:
        given = expert_of(task)
        if given is None:
            raise NeedsError('only its demonstrations are known: expert = "..." in the [[task]] names the expert')
        environment = make_unfinished(task.named_env)
        acting = acting_expert(given, environment if actor is None else completed(environment, actor))
        if acting.policy is None:
            raise RenderError("the expert is a function, and only policies are drawn")
        return Actor(acting.policy, acting.spec), acting.deterministic

    return _drawn(f"The expert{returned}", task, expert)


def _drawn(caption: str, task: Task, load: Any) -> Clip:
    """The clip of a policy that `load` returns (with whether it acts deterministically), or why there is none."""
    try:
        loaded = load()
        if isinstance(loaded, Actor):
            return Clip(caption, clip(loaded, task.named_env))
        expert, deterministic = loaded
        return Clip(caption, clip(expert, task.named_env, 0, deterministic, drawing.EXPERT))
    except Exception as error:  # noqa: BLE001 (for example actions that are not finite, or no memory for frames)
        known = isinstance(error, UnderstudyError)
        reason = quoted(error if known else f"{type(error).__name__}: {error}", LONGEST_REASON)
        print(f"warning: no clip of {task.env}: {reason}", file=sys.stderr)
        return Clip(caption, reason)


def loaded_policy(store: Store, results: TaskResults) -> Actor | None:
    """Any final policy of a task, which completes an environment without bounds; None if no file is intact."""
    for record in (record for learner in results.learners for record in learner.records):
        try:
            return store.load_policy(record["key"])
        except (UnderstudyError, OSError):  # for example a run that diverged, which has none
            continue
    return None


def _in_time(frames: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The frames that are drawn within `SECONDS`, at least one."""
    began = time.monotonic()
    for frame in frames:
        yield frame
        if time.monotonic() - began > SECONDS:
            return


def _png(picture: Any) -> bytes:
    file = io.BytesIO()
    picture.savefig(file, dpi=110, format="png")
    return file.getvalue()
