"""HDF5 files as robomimic, D4RL and Minari lay them out, written with h5py and the real Minari."""

import json
import os
import shutil
import unittest.mock
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from support.fuzzing import check_demonstrations
from support.mutations import loaded, mutate_directory, mutate_file
from understudy.data.files import load

Arrays = dict[str, np.ndarray]


def write_robomimic(
    path: Path, lengths: tuple[int, ...] = (5, 3, 4), filters: dict[str, Any] | None = None
) -> list[Arrays]:
    """A file with demo_0, demo_1, ...; returns the arrays of each."""
    rng, demos = np.random.default_rng(0), []
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(lengths)
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_type": 1, "env_kwargs": {"robots": ["Panda"]}})
        for k, length in enumerate(lengths):
            joints, objects = rng.normal(size=(length + 1, 7)), rng.normal(size=(length + 1, 10))
            success = k != 1
            demo = {
                "actions": rng.uniform(-1, 1, (length, 4)),
                "rewards": (np.arange(length) == length - 1) * float(success),
                "dones": (np.arange(length) == length - 1).astype(np.int64),
                "states": rng.normal(size=(length, 20)),
                "obs/robot0_joint_pos": joints[:-1],
                "obs/object": objects[:-1],
                "obs/gripper": joints[:-1, 0],
                "obs/agentview_image": rng.integers(0, 255, (length, 84, 84, 3)).astype(np.uint8),
                "next_obs/robot0_joint_pos": joints[1:],
                "next_obs/object": objects[1:],
                "next_obs/gripper": joints[1:, 0],
                "next_obs/agentview_image": rng.integers(0, 255, (length, 84, 84, 3)).astype(np.uint8),
            }
            group = data.create_group(f"demo_{k}")
            group.attrs["num_samples"], group.attrs["model_file"] = length, "<mujoco/>"
            for name, array in demo.items():
                image = {"compression": "gzip"} if name.endswith("image") else {}
                group.create_dataset(name, data=array, **image)
            demos.append(demo)
        for name, members in (filters or {}).items():
            file[f"mask/{name}"] = members
    return demos


def write_d4rl(path: Path, steps: int = 12, **arrays: Any) -> Arrays:
    """A file of flat arrays: episodes end by a timeout after step 3, by a terminal after step 7; the last is cut off.

    An array that is None is left out. Returns the arrays.
    """
    rng = np.random.default_rng(0)
    whole = {
        "observations": rng.normal(size=(steps, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
        "rewards": rng.normal(size=steps).astype(np.float32),
        "terminals": np.arange(steps) == 7,
        "timeouts": np.arange(steps) == 3,
        **arrays,
    }
    whole = {name: array for name, array in whole.items() if array is not None}
    with h5py.File(path, "w") as file:
        for name, array in whole.items():
            file.create_dataset(name, data=array, compression="gzip")
        file["infos/qpos"] = rng.normal(size=(steps, 3))
        file["metadata/algorithm"] = "SAC"
    return whole


OBSERVED = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "matrix": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "dict": spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "arm": spaces.Dict({"pos": spaces.Box(-2, 2, (3,))})}),
    "tuple": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3]))),
    "discrete": spaces.Discrete(5),
    "binary": spaces.MultiBinary(4),
}
ACTED = {
    "box": spaces.Box(np.array([-1, -2], np.float32), np.array([1, 3], np.float32)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "discrete": spaces.Discrete(4, start=2),
    "multi": spaces.MultiDiscrete([3, 2]),
    "binary": spaces.MultiBinary(3),
}


def write_minari(
    root: Path, observed: str, acted: str, lengths: tuple[int, ...] = (4, 1, 3), infos: bool = False, **options: Any
) -> tuple[Path, list[EpisodeBuffer]]:
    """A data set that Minari's own `create_dataset_from_buffers` writes. The last episode ends in a terminal state."""
    observation_space, action_space = OBSERVED[observed], ACTED[acted]
    observation_space.seed(0)
    action_space.seed(0)
    buffers = []
    for k, length in enumerate(lengths):
        seen = [observation_space.sample() for _ in range(length + 1)]
        last = np.arange(length) == length - 1
        buffers.append(
            EpisodeBuffer(
                observations=_stacked(observation_space, seen),
                actions=np.stack([np.asarray(action_space.sample()) for _ in range(length)]),
                rewards=np.linspace(k, k + 1, length).tolist(),
                terminations=(last & (k == len(lengths) - 1)).tolist(),
                truncations=(last & (k < len(lengths) - 1)).tolist(),
                infos={"success": np.arange(length + 1) >= (2 if k == 0 else 99)} if infos else None,
            )
        )
    with unittest.mock.patch.dict(os.environ, {"MINARI_DATASETS_PATH": str(root)}):
        name = f"test/{observed}-{acted}-v0"
        minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=observation_space,
            action_space=action_space,
            **{"data_format": "hdf5", **options},
        )
    return root / name, buffers


def _stacked(space: Any, values: list[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _stacked(one, [value[name] for value in values]) for name, one in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(one, [value[i] for value in values]) for i, one in enumerate(space.spaces))
    return values if isinstance(space, spaces.Text) else np.stack([np.asarray(value) for value in values])


def make_valid(kind: str, folder: Path) -> list[Path]:
    """Valid files or directories of one format."""
    if kind == "minari":
        pairs = (("box", "box"), ("dict", "discrete"), ("tuple", "multi"))
        return [write_minari(folder, *pair, infos=True)[0] for pair in pairs]
    paths = [folder / f"{kind}-{i}.hdf5" for i in range(2)]
    if kind == "d4rl":
        write_d4rl(paths[0])
        whole = write_d4rl(paths[1], timeouts=None, actions=np.arange(12) % 3, rewards=np.zeros((12, 1)))
        paths[1] = paths[1].rename(folder / "hopper_fuzz.hdf5")
        assert len(whole) == 4
    else:
        for path, libver in zip(paths, ("earliest", "latest"), strict=True):
            write_robomimic(folder / "first.hdf5", (3, 2), {"train": np.array(["demo_0"], "S"), "valid": ["demo_1"]})
            with h5py.File(folder / "first.hdf5") as old, h5py.File(path, "w", libver=libver) as new:
                for name in ("data", "mask"):
                    old.copy(name, new)
                for demo in new["data"]:
                    for images in ("obs/agentview_image", "next_obs/agentview_image"):  # most bytes would be images
                        del new[f"data/{demo}/{images}"]
    return paths


KINDS = ("minari", "robomimic", "d4rl")
"""The formats that are fuzzed."""


def attack_hdf5(kind: str, valid: list[Path], folder: Path, seed: int) -> tuple[str, bool]:
    """Damage a copy of a valid file or directory and read it. Returns the damage, and whether it was read.

    HDF5 files have no checksum over their numbers, so a changed number may be read.
    """
    source = valid[seed % len(valid)]
    path = folder / source.name
    if source.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path)
        damage = mutate_directory(path, seed)
    else:
        shutil.copy(source, path)
        damage = mutate_file(path, seed)
    options = {"filter": ("train", "valid")[seed // 2 % 2]} if kind == "robomimic" and seed % 3 == 0 else {}
    value = loaded(lambda: load(f"{kind}:{path}", **options), path.name)
    if value is not None:
        check_demonstrations(value)
    return damage, value is not None
