"""AdRIL on Ant with standard and with balanced minibatches, by environment steps (`studies/balanced.toml`)."""

from typing import Annotated

from understudy.core.options import Path_, default
from understudy.paper.reward import DEFAULTS, Options, reproduce_figure


def reproduce_balanced(
    options: Options = DEFAULTS,
    work: Annotated[Path_, default("runs/reward-ant")] = None,
    out: Annotated[Path_, default("docs/results/balanced.csv")] = None,
) -> None:
    """Return by environment steps for AdRIL on Ant, with standard and with balanced minibatches.

    Args:
        work: Directory of the finished cells, shared with `reproduce reward`.
        out: CSV file of the returns; the figure is written next to it.
    """
    reproduce_figure("balanced", "ant", options, work, out)
