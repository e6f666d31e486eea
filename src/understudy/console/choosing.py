"""Which states of a round a person is asked about: at most a few of those that the algorithm would ask about.

novelty    one after the other, the candidate farthest from all demonstrated, answered and chosen states, each number
           of an observation divided by its standard deviation. Ask where the learner has no data.
spread     evenly over the candidates of the round, in the order of the episodes. Ask as DAgger would, thinned out.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from understudy.core.errors import check_choice
from understudy.experts.respondent import AskedRound

Choice = Literal["novelty", "spread"]
MOST_KNOWN = 20_000
"""Known states that distances are measured to; of more, an even selection."""
WORDS = {
    "novelty": "states far from all demonstrated and answered ones",
    "spread": "states spread evenly over the learner's episodes",
}


class Chosen(NamedTuple):
    """Rows of a round, the first to be asked first, and how far each is from the known states."""

    rows: np.ndarray
    distances: np.ndarray


def check_choice_of_states(choose: str) -> None:
    check_choice(get_args(Choice), choose=choose)


def choose_states(asked: AskedRound, known: np.ndarray, most: int, how: Choice) -> Chosen:
    """At most `most` of the candidates. `known` holds the demonstrated and answered states."""
    rows, obs = asked.candidates, np.asarray(asked.steps.obs, np.float64)
    scale = known.std(axis=0) if len(known) > 1 else np.ones(obs.shape[1])
    scale = np.where(scale > 1e-6 * np.maximum(1.0, np.abs(known).max(axis=0, initial=0.0)), scale, 1.0)
    if len(known) > MOST_KNOWN:
        known = known[np.linspace(0, len(known) - 1, MOST_KNOWN).astype(int)]
    places = obs[rows] / scale
    nearest = _nearest(places, np.asarray(known, np.float64) / scale)
    count = min(most, len(rows))
    if how == "spread":
        ordered = np.argsort(rows, kind="stable")
        picks = ordered[np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))] if count else ordered[:0]
        return Chosen(rows[picks], nearest[picks])
    left, chosen, distances = nearest.copy(), [], []
    for _ in range(count):
        pick = int(np.argmax(left))
        chosen.append(pick)
        distances.append(left[pick])
        left = np.minimum(left, np.linalg.norm(places - places[pick], axis=1))
        left[chosen] = -1.0
    return Chosen(rows[np.array(chosen, int)], np.array(distances))


def reason(distance: float, gated: bool) -> str:
    """Why a state is asked about, in words."""
    gate = "the algorithm's gate asks here; " if gated else ""
    return f"{gate}{distance:.2g} standard deviations from the nearest known state"


def _nearest(places: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The distance of each place to the nearest known one; infinite without any."""
    nearest = np.full(len(places), np.inf if not len(known) else 0.0)
    for start in range(0, len(places) if len(known) else 0, 256):
        part = places[start : start + 256]
        squared = (part**2).sum(1)[:, None] - 2 * part @ known.T + (known**2).sum(1)
        nearest[start : start + 256] = np.sqrt(np.maximum(squared, 0).min(axis=1))
    return nearest
