"""Rollouts as images: a GIF of tasks that can be drawn, a PNG of flights through the forest."""

import io
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from understudy.collect.rollouts import rollout
from understudy.envs import Forest, make_unfinished
from understudy.evaluation import drawing
from understudy.evaluation.rendering import film
from understudy.evaluation.returns import completed
from understudy.evaluation.video import gif
from understudy.policies.actor import Actor, check_fits

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


def clip(actor: Actor, env: Any, seed: int = 0) -> bytes:
    """A GIF or PNG of a rollout. Raises RenderError if the task cannot be drawn here."""
    environment = completed(make_unfinished(env), actor)
    check_fits(actor, environment)
    if isinstance(environment, Forest):
        picture, (axis,) = drawing.figure(1)
        flights = rollout(environment, actor.policy, FLIGHTS, seed)
        drawing.draw_forest(axis, environment, [flights], drawing.LEARNER, "")
        return _png(picture)
    every = max(1, min(environment.spec.horizon, STEPS) // FRAMES)
    frames, per_second = film(actor, environment, seed, STEP_TIMEOUT)
    return gif(islice(_in_time(frames), 0, STEPS, every), every * 1000 / per_second, SIDE)


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
