"""`understudy reproduce filter-tree`: what exploration costs in TREE, and what is left of it with expert resets.

"The Hidden Cost of Reward Moment Matching" is that a best response has |A|^T paths to choose among. FILTER's episodes
begin at the expert's states. The numbers are exact (`tabular.resets`): nothing is sampled and nothing is learned.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from understudy.core import display
from understudy.core.errors import SettingError, check_whole
from understudy.core.options import Path_, default
from understudy.core.paths import check_own_file
from understudy.evaluation import drawing
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.tabular import examples, resets
from understudy.train.tables import write_csv

COLUMNS = ("actions", "horizon", "search", "start_share", "episodes", *PROVENANCE)
ALL, RANDOM, PSDP = "each path once", "random actions", "PSDP"
SHARES = (0.0, 0.5, 1.0)
"""Shares of episodes that begin at the expert's states."""


class Cost(NamedTuple):
    """The episodes of one search in one tree."""

    actions: int
    horizon: int
    search: str
    start_share: float
    episodes: float


def reproduce_filter_tree(
    horizon: int = 13, out: Annotated[Path_, default("docs/results/filter-tree.csv")] = None
) -> None:
    """Episodes of a search for the expert's leaf in TREE, without resets and from the expert's states.

    Args:
        horizon: The longest horizon, for two actions; four actions have half of it.
        out: CSV file; the figure is written next to it.
    """
    check_whole(1, horizon=horizon)
    path = Path(out or "docs/results/filter-tree.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a file that ends in .csv is needed")
    check_own_file(path, ",".join(COLUMNS))
    rows: list[Cost] = []
    with display.working("trees"):
        for actions, longest in ((2, horizon), (4, -(-horizon // 2))):
            for length in range(1, longest + 1):
                rows += costs(actions, length)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = provenance_columns()
    write_csv(path, list(COLUMNS), [[*row[:4], round(row.episodes, 6), *made] for row in rows])
    draw(rows, path.with_suffix(".png"))
    for actions in (2, 4):
        own = [row for row in rows if row.actions == actions]
        last = max(row.horizon for row in own)
        table = [[row.search, f"{row.start_share:g}", f"{row.episodes:,.1f}"] for row in own if row.horizon == last]
        title = f"TREE with {actions} actions and {last} steps: episodes until the way to the expert's leaf is known"
        display.show(("search", ">share of expert's states", ">episodes"), table, title)
    print(f"\nNumbers: {path}. Figure: {path.with_suffix('.png')}")


def costs(actions: int, horizon: int) -> list[Cost]:
    """The episodes of each search in one tree."""
    tree = examples.tree(horizon, actions)
    return [
        Cost(actions, horizon, ALL, 0.0, resets.path_count(tree)),
        *(Cost(actions, horizon, RANDOM, share, resets.expected_episodes(tree, share)) for share in SHARES),
        Cost(actions, horizon, PSDP, 1.0, resets.psdp_episodes(tree)),
    ]


def draw(rows: Sequence[Cost], path: Path) -> None:
    """Draw the episodes by horizon, a panel for each number of actions."""
    numbers = sorted({row.actions for row in rows})
    figure, axes = drawing.figure(len(numbers), width=4.6, height=3.9)
    for axis, actions in zip(axes, numbers, strict=True):
        lines = [(RANDOM, share, f"random, start_share {share:g}") for share in SHARES]
        for index, (search, share, label) in enumerate([*lines, (PSDP, 1.0, "PSDP: chosen states, backward")]):
            own = [row for row in rows if (row.actions, row.search, row.start_share) == (actions, search, share)]
            x, y = [row.horizon for row in own], [row.episodes for row in own]
            axis.semilogy(x, y, marker="o", markersize=4, color=drawing.LINES[index], label=label)
        axis.set(title=f"TREE, |A| = {actions}", xlabel="horizon T", ylabel="episodes (expected)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=7, frameon=False)
    drawing.save(figure, path)
