"""Code that files name runs only if the person has named its module too."""

import sys

import pytest
import tyro

from understudy.core import imports
from understudy.core.errors import NeedsError
from understudy.core.options import Imports


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A current directory with a module, and no allowed modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(imports, "_allowed", set())
    (tmp_path / "my_module_of_a_test.py").write_text("answer = 42")
    yield "my_module_of_a_test"
    sys.modules.pop("my_module_of_a_test", None)


def command(run: str = "", imports: Imports = ()) -> tuple[str, ...]:
    return imports


def test_the_option_import_is_repeatable():
    assert tyro.cli(command, args=["--import", "a", "--import", "b.c"]) == ("a", "b.c")
    assert tyro.cli(command, args=[]) == ()


def test_a_file_may_name_code_of_a_module_that_the_person_named(fresh):
    with pytest.raises(NeedsError, match=f"add --import {fresh}"):
        imports.check_import(f"{fresh}:answer", "config.json")
    imports.allow_imports((fresh,))
    imports.check_import(f"{fresh}:answer", "config.json")
    assert imports.load_name(f"{fresh}:answer", "number") == 42
    assert imports.allowed_imports() == (fresh,)


def test_names_without_a_module_are_always_allowed(fresh):
    imports.check_import(None, "config.json")
    imports.check_import("Pendulum-v1", "config.json")


def test_a_module_of_the_current_directory_does_not_replace_an_installed_one(fresh, tmp_path):
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('imported from the current directory')")
    sys.modules.pop("colorsys", None)
    imports.allow_imports(("colorsys",))
    assert tmp_path.name not in sys.modules["colorsys"].__file__


def test_a_module_that_cannot_be_imported_is_named(fresh):
    with pytest.raises(NeedsError, match="no_such_module_here"):
        imports.allow_imports(("no_such_module_here",))


def test_without_the_option_nothing_is_imported_from_the_current_directory(fresh, tmp_path):
    imports.allow_imports(())
    assert str(tmp_path) not in sys.path
