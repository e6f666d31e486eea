"""Demonstrations: checking, reading and writing them, and the bundled ones.

Imports core. Public: `Demonstrations`, `load`, `bundled`. The folder also holds the bundled data files:
`bundled/` (demonstrations) and `experts/` (weights and cards, read by the room `experts`).
"""

from understudy.data.demonstrations import Demonstrations
from understudy.data.files import bundled, load

__all__ = ["Demonstrations", "bundled", "load"]
