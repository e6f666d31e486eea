"""The expert's side of f: which steps stand for it, and which settings need the expert's actions."""

from typing import Any

from jaxtyping import Array, Key

from understudy.core.types import Dataset, Transition
from understudy.game.sampling import Rows, take


def expert_steps(demonstrations: Dataset, visible: Rows, key: Key[Array, ""], shape: tuple[int, ...]) -> Transition:
    """Steps of the expert that f can see, drawn with replacement: from the demonstrations or from their estimate."""
    if demonstrations.estimate is not None:
        return demonstrations.estimate.sample(key, shape)
    steps: Transition = take(demonstrations.steps, visible.sample(key, shape))
    return steps


def actions_needed(algorithm: Any) -> str | None:
    """Why an algorithm with a `match` needs the expert's actions; None if it does not."""
    changes = {
        "match='obs' or 'obs-next'": algorithm.match == "obs-act",
        "balanced=False": algorithm.balanced,
        "clone_steps=0": algorithm.clone_steps > 0,
        "sac.cloning_weight=0": algorithm.sac.cloning_weight != 0,
        "replays=0": algorithm.replays > 0,
    }
    needed = [change for change, needs in changes.items() if needs]
    if not needed:
        return None
    listed = " and ".join(filter(None, (", ".join(needed[:-1]), needed[-1])))
    which = "" if "observations" in algorithm.presets else "adril or gail with "
    return (
        f"{algorithm.card.name} with match='{algorithm.match}' and demonstrations without actions needs {listed}: "
        f"choose {which}preset 'observations'"
    )
