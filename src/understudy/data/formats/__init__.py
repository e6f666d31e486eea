"""Formats of demonstrations, one file each. Every module here with a `FORMAT` is found and listed under its name.

A format's libraries (h5py, pyarrow) are imported when a file is read, not before.
"""

import importlib
import pkgutil

from understudy.data.formats.base import Format, Selection


def _discover() -> dict[str, Format]:
    modules = [importlib.import_module(info.name) for info in pkgutil.iter_modules(__path__, f"{__name__}.")]
    found = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {one.name: one for one in found}


FORMATS: dict[str, Format] = _discover()
"""All formats, by name."""

__all__ = ["FORMATS", "Format", "Selection"]
