"""Studies: these algorithms, these tasks, these numbers of demonstrations, these seeds, and what came of it."""

from understudy.studies.cells import FORMAT, Damaged, Store, canonical, checksum_of, key_of
from understudy.studies.claims import Claim
from understudy.studies.groups import Cell, Group, check_tasks, load_demonstrations
from understudy.studies.plan import Entry, Hardware, Protocol, Study, Task

__all__ = [
    "FORMAT",
    "Cell",
    "Claim",
    "Damaged",
    "Entry",
    "Group",
    "Hardware",
    "Protocol",
    "Store",
    "Study",
    "Task",
    "canonical",
    "check_tasks",
    "checksum_of",
    "key_of",
    "load_demonstrations",
]
