"""The shapes and types in annotations hold at run time, for every algorithm and RL player."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as us


@pytest.mark.slow
@pytest.mark.timeout(1200)  # 21 algorithms, most with two kinds of actions: every one compiles
def test_annotations_hold_at_run_time():
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "support.annotated"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == "a wrong shape is noticed"
    for name, cls in us.ALGORITHMS.items():
        for kind in cls.card.actions:
            assert f"{name} {kind}" in lines
    assert lines[-1].startswith("players")
