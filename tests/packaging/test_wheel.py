"""The wheel holds the package with its data files, and nothing of the repository's upkeep."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import understudy as us

ROOT = Path(__file__).parents[2]
TEST_SETTINGS = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
"""What tests/conftest.py sets for short programs. The demo trains for longer."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("understudy_il-*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_has_the_package_and_its_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "understudy"
    wanted = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in wanted} <= names
    suffixes = {Path(name).suffix for name in names if name.startswith("understudy/")}
    assert {".py", ".npz", ".json", ".toml", ".css", ".js"} <= suffixes
    assert all(name.startswith(("understudy/", "understudy_il-")) for name in names)
    assert any(name.endswith("entry_points.txt") for name in names)
    assert wheel.name.startswith(f"understudy_il-{us.__version__}-")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_installed_wheel_trains_outside_the_clone(wheel, tmp_path):
    """In an environment of its own, which borrows only the dependencies: their folder is on PYTHONPATH, where Python
    reads no .pth files, so this clone's editable installation is not found. Nothing is downloaded."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, text=True)
    borrowed = os.pathsep.join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    kept = {name: value for name, value in os.environ.items() if name not in TEST_SETTINGS}
    environment = {**kept, "PYTHONPATH": borrowed, "JAX_PLATFORMS": "cpu"}

    def run(*words):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(python), "-c", "import understudy; print(understudy.__file__)").strip()
    assert Path(where).is_relative_to(home)
    assert run(str(home / "bin" / "understudy"), "--version") == f"understudy {us.__version__}\n"
    assert "imitation gap" in run(str(home / "bin" / "understudy"), "demo")
    assert {"demo.png", "demo.csv"} <= {file.name for file in (tmp_path / "out" / "demo").iterdir()}
