"""Types of command-line options that several commands share."""

from typing import Annotated

import tyro

Name = Annotated[str | None, tyro.conf.arg(metavar="NAME")]
Path_ = Annotated[str | None, tyro.conf.arg(metavar="PATH")]
