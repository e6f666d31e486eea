"""AdRIL by the number of environment steps between updates of its moment function f (`studies/f-frequency.toml`)."""

from typing import Annotated

from understudy.core.options import Path_, default
from understudy.paper.figure_studies import TaskName
from understudy.paper.reward import DEFAULTS, Options, reproduce_figure


def reproduce_f_frequency(
    task: TaskName = "halfcheetah",
    options: Options = DEFAULTS,
    work: Annotated[Path_, default("runs/reward-TASK")] = None,
    out: Annotated[Path_, default("docs/results/f-frequency.csv, or on Ant f-frequency-ant.csv")] = None,
) -> None:
    """Return by environment steps for AdRIL, whose moment function is updated every 1,250 to 50,000 steps.

    Args:
        task: Task of the paper.
        work: Directory of the finished cells, shared with `reproduce reward`.
        out: CSV file of the returns; the figure is written next to it.
    """
    suffix = "-ant" if task == "ant" else ""
    reproduce_figure("f-frequency", task, options, work, out or f"docs/results/f-frequency{suffix}.csv")
