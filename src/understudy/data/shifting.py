"""Observations after steps: usually the next row, so that only those after an episode's last step are kept."""

from typing import Any

import numpy as np

from understudy.data.checks import Checker, blocks


def shifted(observations: np.ndarray, lengths: np.ndarray, final: np.ndarray) -> np.ndarray:
    """The observation after each step: the next row, or the episode's row of `final` after its last step."""
    after = np.roll(observations, -1, axis=0)
    after[np.cumsum(lengths) - 1] = final
    return after


def is_shifted(after: np.ndarray, observations: np.ndarray, lengths: np.ndarray) -> bool:
    """Whether the observation after each step, except an episode's last, is the next row, bit for bit."""
    last = np.zeros(len(observations), bool)
    last[np.cumsum(lengths) - 1] = True
    for rows in blocks(observations[:-1]):
        inside = ~last[rows]
        here, there = after[rows][inside], observations[rows.start + 1 : rows.stop + 1][inside]
        if not np.array_equal(here.view(np.uint32), there.view(np.uint32)):  # 0.0 and -0.0 differ
            return False
    return True


def checked_next(
    check: Checker, after: Any, final: Any, observations: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The final observations, and all next ones if one inside an episode is not the next row. Checks what is given."""
    if final is not None:
        final = check.episode_rows("last_observations", final, lengths, observations)
    if after is None:
        return final, None
    after = check.rows("next_observations", after, lengths, like=observations)
    if final is not None:
        check.same_ends(after, final, lengths)
    return after[np.cumsum(lengths) - 1], None if is_shifted(after, observations, lengths) else after
