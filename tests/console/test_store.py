"""The directory of a console: ours or refused, and never torn."""

from pathlib import Path

import pytest

from understudy.console.store import Lines, Store
from understudy.core.errors import RunError


def test_the_same_directory_continues_with_its_token(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "a", "Pendulum", "dagger")
    first.close()
    again = Store.open(tmp_path / "a", "Pendulum", "dagger")
    assert again.token == first.token
    assert len(first.token) == 48
    assert (tmp_path / "a" / "token").stat().st_mode & 0o777 == 0o600
    again.close()


def test_two_consoles_cannot_have_one_directory(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a", "Pendulum", None)
    with pytest.raises(RunError, match="in use by another console"):
        Store.open(tmp_path / "a", "Pendulum", None)
    store.close()


@pytest.mark.parametrize(("env", "algorithm"), [("Forest", "dagger"), ("Pendulum", "daequil")])
def test_a_directory_of_another_session_is_refused(tmp_path: Path, env: str, algorithm: str) -> None:
    Store.open(tmp_path / "a", "Pendulum", "dagger").close()
    with pytest.raises(RunError, match="holds a console"):
        Store.open(tmp_path / "a", env, algorithm)


def test_demonstrations_come_first_and_the_algorithm_later(tmp_path: Path) -> None:
    Store.open(tmp_path / "a", "Pendulum", None).close()
    store = Store.open(tmp_path / "a", "Pendulum", "dagger")
    assert store.about["algorithm"] == "dagger"
    store.close()


def test_a_directory_that_is_not_ours_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="not the directory of a console"):
        Store.open(tmp_path, "Pendulum", None)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(RunError, match="not a directory"):
        Store.open(tmp_path / "a", "Pendulum", None)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "{", '{"format": 99, "understudy": "9", "env": "x", "algorithm": null}']
)
def test_a_damaged_description_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "console.json").write_text(text)
    with pytest.raises(RunError):
        Store.open(tmp_path, "x", None)
    assert (tmp_path / "console.json").read_text() == text


def test_a_line_that_was_cut_off_is_dropped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a.jsonl", {"row": int})
    lines.append({"row": 1})
    with lines.path.open("a") as file:
        file.write('{"row": 2, "acti')
    assert lines.read() == [{"row": 1}]
    lines.append({"row": 3})
    assert lines.read() == [{"row": 1}, {"row": 3}]


@pytest.mark.parametrize("text", ["x\n", "{}\n", '{"row": "1"}\n', '{"row": NaN}\n', "[]\n"])
def test_a_damaged_line_is_named(tmp_path: Path, text: str) -> None:
    lines = Lines(tmp_path / "a.jsonl", {"row": int})
    lines.path.write_text(text)
    with pytest.raises(RunError, match=r"a\.jsonl"):
        lines.read()
