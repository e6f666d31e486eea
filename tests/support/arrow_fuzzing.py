"""What is fuzzed of the Arrow and Parquet formats: valid data sets, and what must hold for damaged ones that are read.

    python -m support.arrow_fuzzing lerobot 5000      (in tests/) in a process of its own, which may die

Arrow and Parquet files have no checksums, so damaged numbers may be read.
"""

import collections
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from gymnasium import spaces

import understudy as us
from support.arrow_data import as_column, copied, demonstrations, lerobot_frames, write_old_imitation, write_old_lerobot
from support.fuzzing import Target, attack, check_demonstrations
from understudy.core.spaces import leaves
from understudy.data.formats.minari_arrow import open_arrow_episodes

OBSERVED = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple((spaces.Discrete(3),))})
SECONDS = 20
"""A file that takes longer to read hangs."""


def make_lerobot(folder: Path) -> list[Path]:
    demonstrations().save(f"lerobot:{folder / 'continuous'}")
    demonstrations(discrete=True, terminals=None).save(f"lerobot:{folder / 'discrete'}")
    return [copied("lerobot", folder), folder / "continuous", folder / "discrete"]


def make_old_lerobot(folder: Path) -> list[Path]:
    return [copied("lerobot_v21", folder), write_old_lerobot(folder / "old", lerobot_frames())]


def make_imitation(folder: Path) -> list[Path]:
    demonstrations().save(f"imitation:{folder / 'continuous'}")
    old = write_old_imitation(folder / "old.npz", demonstrations(discrete=True), infos=np.array(["{}"] * 12))
    return [copied("imitation", folder), copied("imitation_discrete", folder), folder / "continuous", old]


def make_minari(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    found = []
    for kind in ("arrow", "parquet"):
        for i, rows in enumerate((5, 4)):
            observed = [
                as_column(rng.normal(size=(rows, 2))),
                pa.StructArray.from_arrays([pa.array([0] * rows)], ["0"]),
            ]
            table = pa.table(
                {
                    "observations": pa.StructArray.from_arrays(observed, ["a", "b"]),
                    "actions": as_column(rng.normal(size=(rows, 2))),
                    "rewards": rng.normal(size=rows),
                    "terminations": pa.array([False] * rows),
                    "infos": pa.array([{"success": True}] * rows),
                }
            )
            path = folder / kind / str(i) / f"part-0.{kind}"
            path.parent.mkdir(parents=True)
            if kind == "parquet":
                pq.write_table(table, path)
            else:
                with pa.ipc.new_file(path, table.schema) as file:
                    file.write_table(table)
        found.append(folder / kind)
    return found


def load_minari(path: Path) -> list[Any]:
    kind = "arrow" if path.name == "arrow" else "parquet"
    acted, parts = spaces.Box(-1, 1, (2,)), tuple(leaves(OBSERVED))
    about = SimpleNamespace(folder=path, data_format=kind, leaves=parts, action_space=acted)
    with open_arrow_episodes(about, 2) as source:
        return [source.episode(i) for i in range(2)]


def check_minari(episodes: list[Any]) -> None:
    for episode in episodes:
        steps = len(episode.rewards)
        assert [values.shape for values in episode.observations] == [(steps + 1, 2), (steps + 1,)]
        assert (episode.actions.shape, episode.terminations.shape) == ((steps, 2), (steps,))
        for values in (*episode.observations, episode.actions, episode.rewards):
            assert values.dtype.kind in "fiub"


TARGETS = {
    "lerobot": Target(make_lerobot, us.load, check_demonstrations, checksums=False),
    "old lerobot": Target(make_old_lerobot, us.load, check_demonstrations, checksums=False),
    "imitation": Target(make_imitation, us.load, check_demonstrations, checksums=False),
    "minari arrow": Target(make_minari, load_minari, check_minari, checksums=False),
}


def campaign(name: str, first: int, count: int) -> collections.Counter[str]:
    """Damage data sets in child processes. A child that dies counts as a crash, and the next one goes on."""
    outcomes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        valid = Path(folder) / "valid"
        valid.mkdir()
        paths = TARGETS[name].make(valid)
        seed = first
        while seed < first + count:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                _attack_all(name, paths, Path(folder), range(seed, first + count), writing)
            os.close(writing)
            with os.fdopen(reading) as pipe:
                lines = pipe.read().splitlines()
            status = os.waitpid(child, 0)[1]
            outcomes.update(lines)
            seed += len(lines)
            if status:
                hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
                outcomes["hangs" if hung else "crashes"] += 1
                print(f"{name}, seed {seed}: the process died with status {status}", file=sys.stderr)
                seed += 1
    return outcomes


def _attack_all(name: str, paths: list[Path], folder: Path, seeds: range, pipe: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.close(1)
    for seed in seeds:
        signal.alarm(SECONDS)
        try:
            outcome = "valid" if attack(TARGETS[name], paths, folder, seed)[1] else "refused"
        except BaseException:  # noqa: BLE001 (any exception is a finding)
            print(f"{name}, seed {seed}: {traceback.format_exc()}", file=sys.stderr)
            outcome = "other exceptions"
        os.write(pipe, f"{outcome}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    print(sys.argv[1], dict(campaign(sys.argv[1], 0, int(sys.argv[2]))))
