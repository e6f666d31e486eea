"""Notes in locks: what another process can read about the owner of a lock."""

import os

import pytest

from understudy.core.errors import RunError
from understudy.core.locks import claim, claim_output, read_note


def test_a_note_can_be_read_while_the_lock_is_held(tmp_path):
    path = tmp_path / "a.lock"
    assert read_note(path) == []
    with claim(path) as held:
        assert read_note(path) == []
        held.note(12, 300)
        assert read_note(path) == [12, 300]
        held.note(1, 300)
        assert read_note(path) == [1, 300], "a shorter note replaces all of it"
        assert claim(path) is None
    with claim(path):
        assert read_note(path) == [], "the next owner has noted nothing"


def test_files_that_are_no_locks_have_no_note(tmp_path):
    path = tmp_path / "a.lock"
    for content in (b"", b"12", b"1\n2\nx\n", b"1\n\n3\n", b"1\n" * 100, b"\xff\n2\n3\n"):
        path.write_bytes(content)
        assert read_note(path) == []
    (tmp_path / "link.lock").symlink_to(path)
    assert read_note(tmp_path / "link.lock") == []
    assert read_note(tmp_path) == []


def test_the_owner_is_named_beside_its_note(tmp_path):
    with claim_output(tmp_path / "run") as held:
        held.note(3, 4)
        with pytest.raises(RunError, match=rf"in use by another process \(process {os.getpid()}\)"):
            claim_output(tmp_path / "run")
