"""Simulated power cuts: what can be on the disk if the power fails while a program writes files.

`Journal(root).recording()` records the operations on files under `root`: creating, writing, syncing, renaming, linking
and removing. `crashes(journal, scratch)` then writes to `scratch`, one after the other, the states that a power cut
after each operation may leave:

    names       changes of a directory since its last fsync: none was kept, all were, only the last was
    contents    of files that changed since their last fsync: the synced ones (empty if there are none), the first half
                of the new ones, all of the new ones

This is stricter than most file systems, which keep the order of renames. A program calls `journal.mark(label)` when it
has promised something; a crash has the labels of the marks before it.

    journal = Journal(tmp_path)
    with journal.recording():
        save(tmp_path / "a")
        journal.mark("saved")
    for crash in crashes(journal, scratch):
        assert "saved" not in crash.marks or load(crash.folder / "a") == ...
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from understudy.core import storage


class File:
    """A file, whatever its names are."""

    def __init__(self, content: bytes):
        self.content = content
        self.seen: Any = None


class Folder:
    """A directory: its entries as the running program sees them."""

    def __init__(self):
        self.entries: dict[str, File | Folder] = {}


class Crash(NamedTuple):
    """A state of the disk after a power cut."""

    folder: Path
    marks: tuple[str, ...]
    """The promises that the program made before."""
    after: str
    """The last operation before the power cut, and which unsynced changes were kept."""


class Journal:
    """The operations of this process on the files under a directory, in their order."""

    def __init__(self, root: Path):
        self.root, self.top = Path(root), Folder()
        self.events: list[tuple[Any, ...]] = []
        self._scan()
        self.events.clear()  # what is there at the beginning is on the disk
        self.start = _entries(self.top)
        nodes = [node for found in self.start.values() for node in found.values()]
        self.contents = {node: node.content for node in nodes if isinstance(node, File)}

    def mark(self, label: str) -> None:
        """Note that something has been promised."""
        self._scan()
        self.events.append(("mark", label))

    @contextmanager
    def recording(self) -> Iterator["Journal"]:
        """Record the operations of this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir", "fsync"):
                patch.setattr(os, name, self._recorded(name, getattr(os, name)))
            patch.setattr(storage, "_LIBC", _Libc(self, storage._LIBC))
            yield self
            self._scan()

    def _recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._scan()
            if name == "fsync":
                self._sync(arguments[0])
                return function(*arguments)
            places = self._places(name, arguments, options)
            result = function(*arguments, **options)
            if places:
                self._apply(name, places)
            return result

        return call

    def _places(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[tuple[Folder, str]]:
        """The parents and names of an operation's paths; empty if they are not under the root."""
        count = 2 if name in ("rename", "replace", "link") else 1
        found = []
        for path in arguments[:count]:
            text = os.fsdecode(path)
            if options.get("dir_fd") is not None:
                text = os.path.join(os.readlink(f"/proc/self/fd/{options['dir_fd']}"), text)
            place = self._place(text)
            if place is not None:
                found.append(place)
        assert len(found) in (0, count), f"{name}{arguments} crosses the border of {self.root}"
        return found

    def _place(self, path: str) -> tuple[Folder, str] | None:
        path = os.path.abspath(path)
        if not path.startswith(f"{self.root}{os.sep}"):
            return None
        folder = self.top
        *parents, name = Path(path).relative_to(self.root).parts
        for parent in parents:
            below = folder.entries.get(parent)
            assert isinstance(below, Folder), f"{path} is in no recorded folder"
            folder = below
        return folder, name

    def _apply(self, name: str, places: list[tuple[Folder, str]]) -> None:
        """Change the entries of directories, and record that."""
        (folder, first), *rest = places
        if name == "mkdir":
            changes = [(folder, {first: Folder()})]
        elif name == "link":
            changes = [(rest[0][0], {rest[0][1]: folder.entries[first]})]
        elif name in ("rename", "replace"):
            node, (other, second) = folder.entries[first], rest[0]
            if other.entries.get(second) is node:
                return  # two names of the same file: nothing happens
            changes = [(folder, {first: None, second: node})]
            if other is not folder:
                changes = [(other, {second: node}), (folder, {first: None})]
        elif name == "exchange":
            other, second = rest[0]
            assert other is folder
            changes = [(folder, {first: folder.entries[second], second: folder.entries[first]})]
        else:
            changes = [(folder, {first: None})]
        for where, entries in changes:
            for entry, node in entries.items():
                if node is None:
                    del where.entries[entry]
                else:
                    where.entries[entry] = node
            self.events.append(("change", where, entries, f"{name} {' '.join(place[1] for place in places)}"))

    def _sync(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        node = self.top if path == str(self.root) else None
        if node is None:
            place = self._place(path)
            if place is None:
                return
            node = place[0].entries[place[1]]
        self.events.append(("sync", node, f"fsync {os.path.basename(path)}"))

    def _scan(self) -> None:
        """Record files that were created or written since the last operation."""

        def visit(path: str, folder: Folder) -> None:
            found = {entry.name: entry for entry in os.scandir(path)}
            missing = [name for name in folder.entries if name not in found]
            assert not missing, f"{missing} in {path} disappeared in an operation that was not recorded"
            for name, entry in sorted(found.items()):
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode):
                    if name not in folder.entries:
                        folder.entries[name] = Folder()
                        self.events.append(("change", folder, {name: folder.entries[name]}, f"mkdir {name}"))
                    visit(entry.path, folder.entries[name])
                    continue
                node = folder.entries.get(name)
                if node is None:
                    node = folder.entries[name] = File(b"")
                    self.events.append(("change", folder, {name: node}, f"create {name}"))
                seen = (about.st_mtime_ns, about.st_size)
                if node.seen != seen:
                    content = Path(entry.path).read_bytes()
                    if content != node.content:
                        self.events.append(("write", node, content, f"write {name}"))
                    node.content, node.seen = content, seen

        visit(str(self.root), self.top)


class _Libc:
    """libc with a recorded renameat2."""

    def __init__(self, journal: Journal, libc: Any):
        self._journal, self._libc = journal, libc

    def renameat2(self, at: int, old: bytes, at2: int, new: bytes, flags: int) -> int:
        self._journal._scan()
        places = self._journal._places("rename", (old, new), {})
        failed: int = self._libc.renameat2(at, old, at2, new, flags)
        if not failed and places:
            self._journal._apply("exchange", places)
        return failed


def crashes(journal: Journal, scratch: Path) -> Iterator[Crash]:
    """The states that a power cut may leave, each once for the same promises, written to `scratch`/disk."""
    entries: dict[Folder, dict[str, Any]] = {folder: dict(found) for folder, found in journal.start.items()}
    contents, synced = dict(journal.contents), dict(journal.contents)
    pending: dict[Folder, list[dict[str, Any]]] = {}
    marks: tuple[str, ...] = ()
    known: set[Any] = set()
    for kind, subject, *about in journal.events:
        if kind == "mark":
            marks = (*marks, subject)
        elif kind == "change":
            pending.setdefault(subject, []).append(about[0])
        elif kind == "write":
            contents[subject] = about[0]
        elif isinstance(subject, Folder):
            for change in pending.pop(subject, []):
                _change(entries.setdefault(subject, {}), change)
        else:
            synced[subject] = contents.get(subject, b"")
        for names in ("none", "all", "last"):
            for kept in ("synced", "half", "all"):
                files = _files(journal.top, entries, pending, names, _contents(contents, synced, kept))
                key = (marks, frozenset(files.items()))
                if key in known:
                    continue
                known.add(key)
                yield Crash(
                    _write(files, scratch / "disk"), marks, f"{about[-1] if about else 'mark'}: {names}, {kept}"
                )


def _contents(contents: dict[File, bytes], synced: dict[File, bytes], kept: str) -> Callable[[File], bytes]:
    def content(file: File) -> bytes:
        new, old = contents.get(file, b""), synced.get(file, b"")
        if kept == "synced" or new == old:
            return old
        return new if kept == "all" else new[: len(new) // 2]

    return content


def _files(
    folder: Folder,
    entries: dict[Folder, dict[str, Any]],
    pending: dict[Folder, list[dict[str, Any]]],
    names: str,
    content: Callable[[File], bytes],
) -> dict[str, bytes | None]:
    """The contents of all files by their paths; None for an empty directory."""
    found = dict(entries.get(folder, {}))
    changes = pending.get(folder, [])
    for change in {"none": [], "all": changes, "last": changes[-1:]}[names]:
        _change(found, change)
    result: dict[str, bytes | None] = {}
    for name, node in found.items():
        if isinstance(node, Folder):
            below = _files(node, entries, pending, names, content)
            result |= {f"{name}/{path}": x for path, x in below.items()} or {f"{name}/": None}
        else:
            result[name] = content(node)
    return result


def _change(entries: dict[str, Any], change: dict[str, Any]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _entries(folder: Folder) -> dict[Folder, dict[str, Any]]:
    result = {folder: dict(folder.entries)}
    for node in folder.entries.values():
        if isinstance(node, Folder):
            result |= _entries(node)
    return result


def _write(files: dict[str, bytes | None], folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder
