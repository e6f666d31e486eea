"""Pickles, which are refused in one line that says how to convert them: loading one can run any code.

Raw pickles (imitation's oldest recordings), PyTorch files, and npz files of pickled objects, such as those of the
paper's authors: num_trajs, mean_reward, std_reward, and a dict of states and actions under "0", "1", ...
"""

from pathlib import Path

from understudy.core.errors import DemonstrationError, UnderstudyError
from understudy.core.npy import PICKLED
from understudy.core.reader import LONGEST_PATH, Expected, FileReader
from understudy.core.text import quoted
from understudy.data.demonstrations import Demonstrations
from understudy.data.formats.arrays import ALIASES
from understudy.data.formats.base import Format, Selection

TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How PyTorch's files began before version 1.6."""
LOOKED_AT = 30
"""Members of an npz file whose types are looked at."""
SECTION = "docs/demonstrations.md#pickles"


def _kind(path: Path) -> str | None:
    """The kind of pickle that a file is; None: it is none."""
    try:
        start = FileReader(path, "a pickle", "").start(len(TORCH))
    except UnderstudyError:
        return None
    if start == TORCH:
        return "a PyTorch file, which is a pickle"
    old = path.suffix in (".pkl", ".pickle") and start[:2] in (b"(l", b"(d", b"]q", b"cn", b"cc")  # protocols 0 and 1
    if old or (start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")):
        return "a pickle"
    return _archive(path) if start.startswith(b"PK") else None


def _archive(path: Path) -> str | None:
    reader = FileReader(path, "an npz file", "")
    try:
        names = reader.npz_names()
    except UnderstudyError:
        return None
    if any(name.endswith("data.pkl") for name in names):
        return "a PyTorch file, which is a pickle in a zip archive"
    if {"num_trajs", "0"} <= set(names):
        return "an npz file of pickled dicts, as the paper's authors wrote them"
    if set(names) & {*ALIASES["observations"], *ALIASES["actions"]}:  # another format names its array
        return None
    return "an npz file of pickled objects" if any(_is_pickled(reader, name) for name in names[:LOOKED_AT]) else None


def _is_pickled(reader: FileReader, name: str) -> bool:
    """Whether a member declares pickled objects. Nothing but its header is read."""
    try:
        reader.npz(lambda other: Expected(most=0) if other == name else None)
    except UnderstudyError as error:
        return PICKLED in str(error)
    return False


def _read(path: Path, selection: Selection) -> Demonstrations:
    name = quoted(path, LONGEST_PATH)
    kind = _kind(path)
    if kind is None:
        raise DemonstrationError(f"'{name}' is no pickle: leave out 'pickle:'")
    raise DemonstrationError(
        f"'{name}' is {kind}: loading it could run any code, so it is refused; if you trust it, convert it as "
        f"{SECTION} shows"
    )


FORMAT = Format("pickle", "pickle", lambda path: _kind(path) is not None, _read)
