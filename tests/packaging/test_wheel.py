"""The wheel holds the package with its data files, and nothing of the repository's upkeep."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_has_the_package_and_its_data(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("understudy_il-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "understudy"
    wanted = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in wanted} <= names
    suffixes = {Path(name).suffix for name in names if name.startswith("understudy/")}
    assert {".py", ".npz", ".json", ".toml", ".css", ".js"} <= suffixes
    assert all(name.startswith(("understudy/", "understudy_il-")) for name in names)
    assert any(name.endswith("entry_points.txt") for name in names)
