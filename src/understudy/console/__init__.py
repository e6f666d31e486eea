"""The console: a person as the expert, in the browser. docs/console.md has its use, its files and its protocol.

Imports all rooms below. Public: `console`, which is also `understudy.console(...)`.

The server (`server`, `session`) runs in this process. The environment that the person drives, the clips and training
run in processes of their own (`stage`, `clips`, `trainer`). All that a person does is in the files of `store`.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """This module. Once it is imported, `understudy.console` names it and not the function, so it can be called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from understudy.console.launch import console

        return console(*arguments, **options)


sys.modules[__name__].__class__ = _Room
