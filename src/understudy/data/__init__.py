"""Reading and writing demonstrations, and the ones that come with the package."""

from understudy.data.demonstrations import Demonstrations
from understudy.data.files import bundled, load

__all__ = ["Demonstrations", "bundled", "load"]
