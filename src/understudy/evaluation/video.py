"""Videos of a policy: MP4 with ffmpeg (extra `video`), or GIF with Pillow, which Matplotlib brings along."""

import io
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import (
    RenderError,
    SettingError,
    check_kind,
    check_not_negative,
    check_seed,
    check_whole,
    missing_extra,
)
from understudy.core.paths import REPLACE, check_new_file, checked_path
from understudy.core.storage import atomic_file
from understudy.core.text import quoted
from understudy.envs import Environment, GymnasiumEnvironment, make_unfinished
from understudy.evaluation.rendering import film
from understudy.evaluation.returns import completed
from understudy.policies.actor import Actor, check_fits

ENDINGS = (".mp4", ".gif")
GIF_SIDE, GIF_RATE, GIF_COLOURS = 400, 25, 64
"""Longer side of a GIF in pixels, its frames per second at most, and its colours: it has no compression to speak of."""
SHORTEST = 20
"""Milliseconds of a frame. Browsers show shorter ones much longer."""


def check_video(path: str | os.PathLike[str], replace: bool = False) -> None:
    """Raise if a video cannot be written at `path`: an unknown ending, a file that is there, or no ffmpeg.

    With `replace`, a video of this kind may be there.
    """
    if checked_path(path).suffix.lower() not in ENDINGS:
        raise SettingError(f"'{quoted(path)}' has the ending '{Path(path).suffix}': use {' or '.join(ENDINGS)}")
    if not (replace and _is_video(Path(path))):
        check_new_file(path, REPLACE)
    if Path(path).suffix.lower() == ".mp4":
        _ffmpeg()


def _is_video(path: Path) -> bool:
    """Whether a regular file, no link, begins as a GIF or an MP4 does, whichever its name says."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(8)
    return start[4:] == b"ftyp" if path.suffix.lower() == ".mp4" else start[:4] == b"GIF8"


def record_video(
    policy: Actor,
    env: Any,
    path: str | os.PathLike[str],
    episodes: int = 1,
    seed: int = 0,
    step_timeout: float = STEP_TIMEOUT,
    progress: bool = True,
    replace: bool = False,
) -> None:
    """Write a video of a policy that acts deterministically. It needs no display.

    Args:
        policy: A policy such as `result.policy`.
        env: Environment, or its name. A Gymnasium environment needs the render mode "rgb_array".
        path: The file to write: .mp4 (extra `video`) or .gif.
        episodes: Episodes to show, one after the other.
        seed: Seed of the first episode; the next ones have the next seeds.
        step_timeout: Seconds that a step or a picture of a Gymnasium environment may take (0: no limit).
        progress: Show a spinner, if standard error is a terminal.
        replace: Replace an earlier video. Other files are never replaced.

    Raises RenderError, in one line, if the environment cannot be drawn here.
    """
    check_video(path, replace)
    check_kind(Actor, policy=policy)
    check_whole(1, episodes=episodes)
    check_seed(seed)
    check_not_negative(step_timeout=step_timeout)
    environment = completed(make_unfinished(env), policy)
    check_fits(policy, environment)
    title = f"drawing {episodes} {'episode' if episodes == 1 else 'episodes'} of {environment.name}"
    with display.working(title, progress), atomic_file(path, replace) as partial:
        frames, per_second = _episodes(policy, environment, episodes, seed, step_timeout)
        write = _write_mp4 if partial.suffix.lower() == ".mp4" else _write_gif
        write(partial, frames, per_second)


def _episodes(
    policy: Actor, env: Environment | GymnasiumEnvironment, episodes: int, seed: int, step_timeout: float
) -> tuple[Iterator[np.ndarray], float]:
    """The frames of some episodes, each drawn once the one before is over, and how many of them are a second."""
    first = film(policy, env, seed, step_timeout)

    def others() -> Iterator[np.ndarray]:
        for number in range(1, episodes):
            yield from film(policy, env, seed + number, step_timeout).frames

    return chain(first.frames, others()), first.per_second


def _ffmpeg() -> str:
    """The path of the ffmpeg program that imageio-ffmpeg brings along."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise missing_extra("video", "an MP4 file needs imageio-ffmpeg (a .gif does not)") from error
    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise RenderError(f"imageio-ffmpeg has no ffmpeg program: {quoted(error, 300)}") from error


def _write_mp4(path: Path, frames: Iterator[np.ndarray], per_second: float) -> None:
    """H.264 halves the resolution of colours, so an odd size gets a black row or column."""
    first = next(frames)
    height, width = first.shape[:2]
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{per_second:g}", "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    made = [*even, "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path)]
    command = [_ffmpeg(), "-y", "-loglevel", "error", *given, *made]
    with tempfile.TemporaryFile() as words:
        # In a session of its own, so that Ctrl-C ends this process and not a half-written file.
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=words, stderr=words, start_new_session=True)
        try:
            assert encoder.stdin is not None
            with suppress(BrokenPipeError):  # its status says why
                for frame in chain([first], frames):
                    encoder.stdin.write(np.ascontiguousarray(frame).data)
                encoder.stdin.close()
            status = encoder.wait()
        finally:
            encoder.kill()
            encoder.wait()
        if status != 0:
            words.seek(0)
            said = words.read().decode(errors="replace").strip().splitlines() or [f"status {status}"]
            raise RenderError(f"ffmpeg could not write the video: {quoted(said[-1], 300)}")


def _write_gif(path: Path, frames: Iterator[np.ndarray], per_second: float) -> None:
    every = max(1, round(per_second / GIF_RATE))
    path.write_bytes(gif(islice(frames, None, None, every), every * 1000 / per_second))


def gif(frames: Iterable[np.ndarray], frame_ms: float, side: int = GIF_SIDE) -> bytes:
    """A GIF of some frames. Its longer side has at most `side` pixels."""
    from PIL import Image

    pictures = []
    for frame in frames:
        picture = Image.fromarray(np.ascontiguousarray(frame))
        picture.thumbnail((side, side))
        pictures.append(picture.quantize(GIF_COLOURS))
    file = io.BytesIO()
    shown = max(SHORTEST, int(frame_ms))
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=shown, loop=0, optimize=True)
    return file.getvalue()
