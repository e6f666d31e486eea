"""AdRIL by the number of environment steps between updates of its moment function f (`studies/f-frequency.toml`)."""

from understudy.core.options import Path_
from understudy.paper.figure_studies import TaskName
from understudy.paper.reward import DEFAULTS, Options, reproduce_figure


def reproduce_f_frequency(
    task: TaskName = "halfcheetah", options: Options = DEFAULTS, work: Path_ = None, out: Path_ = None
) -> None:
    """Return by environment steps for AdRIL, whose moment function is updated every 1,250 to 50,000 steps.

    Args:
        task: Task of the paper.
        work: Directory of the finished cells, shared with `reproduce reward`. Default: runs/reward-TASK.
        out: CSV file of the returns; the figure is written next to it. Default: docs/results/f-frequency.csv, or on Ant
            f-frequency-ant.csv.
    """
    suffix = "-ant" if task == "ant" else ""
    reproduce_figure("f-frequency", task, options, work, out or f"docs/results/f-frequency{suffix}.csv")
