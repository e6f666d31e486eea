"""AdRIL on Ant with standard and with balanced minibatches, by environment steps (`studies/balanced.toml`)."""

from understudy.core.options import Path_
from understudy.paper.reward import DEFAULTS, Options, reproduce_figure


def reproduce_balanced(options: Options = DEFAULTS, work: Path_ = None, out: Path_ = None) -> None:
    """Return by environment steps for AdRIL on Ant, with standard and with balanced minibatches.

    Args:
        work: Directory of the finished cells, shared with `reproduce reward`. Default: runs/reward-ant.
        out: CSV file of the returns; the figure is written next to it. Default: docs/results/balanced.csv.
    """
    reproduce_figure("balanced", "ant", options, work, out)
