"""Studies: algorithms × tasks × numbers of demonstrations × seeds, trained, stored and reported.

    plan, reading, settings    a study and its TOML file; sweeps: lists of values
    groups                     its cells, grouped by compiled program
    cells, records             the directory of results, and what a cell's file holds
    running, training          training the cells that have not finished; evaluator, interrupts, on_ray
    curves                     returns by seed and by x
    report/                    page, figures and tables

May import every room but `diagnosis`, `paper` and `cli`. Public: `Study` and its parts, `Store`.
"""

from understudy.studies.cells import Store
from understudy.studies.plan import Entry, Hardware, Protocol, Study, Task

__all__ = ["Entry", "Hardware", "Protocol", "Store", "Study", "Task"]
