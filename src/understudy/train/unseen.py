"""Which demonstrations a run has not seen: those that neither trained nor selected a policy."""

from typing import Any

from understudy.core.errors import DemonstrationError
from understudy.core.notices import notice
from understudy.data import Demonstrations
from understudy.train.checkpoints import digest


def unseen(demonstrations: Any, given: dict[str, Any], used: int) -> Demonstrations:
    """The episodes that a run did not use. Raises if it used all of them.

    `given` is the summary of the run's demonstrations, of which it used the first `used` episodes to train and, as
    held-out episodes, to select. They are recognised if they come first and unchanged, by their digest.
    """
    if not isinstance(demonstrations, Demonstrations):
        raise DemonstrationError(f"demonstrations is a {type(demonstrations).__name__}: see Demonstrations.from_arrays")
    count = given["episodes"]
    if demonstrations.episodes < count or digest(demonstrations.first(count).transitions()) != given["digest"]:
        return demonstrations
    if demonstrations.episodes == used:
        raise DemonstrationError(
            "these demonstrations trained and selected the policy, so they certify nothing: pass fresh ones, or expert="
            " (--expert) to record some"
        )
    notice(f"the first {used} demonstrations trained and selected the policy: the other ones are judged")
    return demonstrations.after(used)
