"""Plain NumPy files of other programs, and pickles."""

import io
import pickle
import re
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from support.format_fuzzing import FORMAT_TARGETS, LENGTHS, STEPS, assert_same_facts, demonstrations, fuzz_format
from understudy.core.errors import DemonstrationError, RunError, SettingError
from understudy.data import files

RNG = np.random.default_rng(0)
OBS, ACT, REWARDS = RNG.normal(size=(STEPS, 3)), RNG.normal(size=(STEPS, 2)), RNG.normal(size=STEPS)
LAST = np.isin(np.arange(STEPS), np.cumsum(LENGTHS) - 1)
TERMINAL = np.isin(np.arange(STEPS), (3, 11))
"""The first and the last episode end in a terminal state, the second is truncated."""


def saved(folder, **arrays):
    np.savez(folder / "d.npz", **arrays)
    return folder / "d.npz"


MARKS = {
    "lengths": {"episode_lengths": LENGTHS},
    "ends": {"episode_ends": np.cumsum(LENGTHS)},
    "flags of ends": {"episode_ends": LAST},
    "starts": {"episode_starts": np.roll(LAST, 1)},
    "first rows": {"episode_starts": np.cumsum(LENGTHS) - LENGTHS},
    "numbers": {"episode_index": np.repeat([5, 2, 9], LENGTHS)},
    "terminals and timeouts": {"terminals": TERMINAL, "timeouts": LAST & ~TERMINAL},
    "terminated and truncated": {"terminated": TERMINAL[:, None], "truncated": LAST & ~TERMINAL},
    "dones and timeouts": {"dones": LAST.astype(float), "timeouts": LAST & ~TERMINAL},
    "dones": {"dones": LAST},
}


@pytest.mark.parametrize("case", MARKS)
@pytest.mark.parametrize("names", [("obs", "acts"), ("observations", "actions"), ("states", "action")])
def test_common_names_and_marks_of_episodes_are_understood(case, names, tmp_path):
    d = us.load(saved(tmp_path, **dict(zip(names, (OBS, ACT), strict=True)), rews=REWARDS, **MARKS[case]))
    np.testing.assert_array_equal(d.observations, OBS.astype(np.float32))
    np.testing.assert_array_equal(d.actions, ACT.astype(np.float32))
    np.testing.assert_array_equal(d.rewards, REWARDS.astype(np.float32))
    assert d.lengths.tolist() == LENGTHS.tolist()
    if "timeouts" in MARKS[case] or "terminated" in MARKS[case]:
        assert d.terminals.tolist() == TERMINAL.tolist()
    else:
        assert d.terminals is None  # a bare end is not a terminal state


def test_a_garage_file_is_read_without_its_other_arrays(tmp_path):
    path = saved(
        tmp_path,
        observations=OBS,
        actions=ACT,
        next_observations=OBS + 1,
        rewards=REWARDS,
        terminals=TERMINAL,
        timeouts=LAST & ~TERMINAL,
        seed=np.array([None], object),
        qpos=np.zeros((STEPS, 5)),
    )
    d = us.load(path)
    np.testing.assert_array_equal(d.next_observations, (OBS + 1).astype(np.float32))
    assert d.lengths.tolist() == LENGTHS.tolist()


@pytest.mark.parametrize("extra", [0, 1])
def test_padded_episodes_are_cut_at_their_ends(extra, tmp_path):
    obs, act, dones = RNG.normal(size=(3, 5 + extra, 2)), RNG.normal(size=(3, 5, 1)), np.zeros((3, 5), bool)
    dones[0, 3:] = dones[1, 2] = True
    for marks in ({"lengths": LENGTHS}, {"dones": dones}):
        d = us.load(f"arrays:{saved(tmp_path, obs=obs, actions=act, rewards=np.ones((3, 5)), **marks)}")
        assert d.lengths.tolist() == [4, 3, 5]
        np.testing.assert_array_equal(d.observations[4:7], obs[1, :3].astype(np.float32))
        np.testing.assert_array_equal(d.actions[7:], act[2].astype(np.float32))
        if extra:
            np.testing.assert_array_equal(d.last_observations[0], obs[0, 4].astype(np.float32))
        assert (d.last_observations is None) == (extra == 0)


def test_episodes_of_one_length_need_no_marks(tmp_path):
    d = us.load(saved(tmp_path, obs=np.zeros((3, 5, 2)), acts=np.arange(15).reshape(3, 5) % 4))
    assert d.lengths.tolist() == [5, 5, 5]
    assert d.actions.tolist() == (np.arange(15) % 4).tolist()


def test_concatenated_observations_may_contain_the_final_ones(tmp_path):
    obs = np.arange(2.0 * (STEPS + 3)).reshape(-1, 2)
    d = us.load(saved(tmp_path, observations=obs, acts=ACT, episode_lengths=LENGTHS))
    assert d.last_observations.tolist() == obs[[4, 8, 14]].tolist()
    assert d.observations.tolist() == np.delete(obs, [4, 8, 14], axis=0).tolist()


def test_keys_join_arrays_as_named_parts(tmp_path):
    path = saved(tmp_path, states=OBS, goal=OBS[:, 0], actions=ACT, next_states=OBS, lengths=LENGTHS)
    d = us.load(path, keys=["goal", "states"])
    assert d.obs_parts == (("goal", 1), ("states", 3))
    np.testing.assert_array_equal(d.observations, np.column_stack([OBS[:, 0], OBS]).astype(np.float32))
    assert d.last_observations is None  # the next observations are those of other keys
    assert us.load(path, keys=["states"]).last_observations is not None
    with pytest.raises(DemonstrationError, match=r"keys is \['aim'\]: choose different arrays of actions, goal"):
        us.load(path, keys=["aim"])
    with pytest.raises(SettingError, match="no named subsets"):
        us.load(path, filter="train")


def test_a_directory_of_arrays_keeps_everything(tmp_path):
    given = demonstrations(False)
    target = f"arrays:{tmp_path / 'd'}"
    given.save(target)
    assert_same_facts(us.load(tmp_path / "d"), given, (), ())
    assert us.load(tmp_path / "d").spec == given.spec
    given.save(target)
    with pytest.raises(RunError, match="holds"):
        given.save(target, replace=False)
    (tmp_path / "d/mine.txt").write_text("keep me")
    with pytest.raises(RunError, match=r"mine\.txt"):
        given.save(target)


def test_a_directory_of_other_arrays_is_read_and_links_are_refused(tmp_path):
    for name, array in {"obs": OBS, "acts": ACT, "dones": LAST}.items():
        np.save(tmp_path / f"{name}.npy", array)
    assert us.load(tmp_path).lengths.tolist() == LENGTHS.tolist()
    (tmp_path / "acts.npy").rename(tmp_path.parent / "elsewhere.npy")
    (tmp_path / "acts.npy").symlink_to(tmp_path.parent / "elsewhere.npy")
    with pytest.raises(DemonstrationError, match=r"acts\.npy.*a link"):
        us.load(tmp_path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (25_000_000_000, 10)}
    )
    with open(tmp_path / "obs.npy", "wb") as file:
        file.write(header.getvalue())
        file.truncate(len(header.getvalue()) + 10**12)  # a sparse file, which takes no space
    np.save(tmp_path / "acts.npy", ACT)
    with pytest.raises(DemonstrationError, match=r"obs\.npy' declares 1\.0 TB of arrays"):
        us.load(tmp_path)


BAD = {
    "no marks": ({}, "nothing says where episodes end: add lengths.*--episodes 1"),
    "ends that decrease": ({"episode_ends": np.array([7, 4, 12])}, r"episode_ends is \[7, 4, 12\]: increasing"),
    "ends of another data set": ({"episode_ends": np.array([4, 7, 13])}, "up to the number of steps, 12"),
    "starts after the first row": ({"episode_starts": np.array([1, 4])}, "its first row number must be 0"),
    "flags of another data set": ({"dones": LAST[:-1]}, "dones has shape .11,.: 12 flags are needed"),
    "mixed episodes": ({"episode": np.arange(STEPS) % 2}, "steps of episode 0 are not consecutive"),
    "images": ({"obs": np.zeros((STEPS, 4, 4, 3)), "dones": LAST}, r"observations has shape \(12, 4, 4, 3\)"),
    "nothing": ({"obs": np.zeros((0, 3)), "dones": LAST}, r"observations has shape \(0, 3\)"),
    "pickled actions": ({"acts": np.array([{}] * STEPS), "dones": LAST}, "'acts' holds pickled objects"),
    "too many rewards": ({"rewards": np.zeros(13), "dones": LAST}, "rewards has 13 rows, observations have 12"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_refused_in_one_line(case, tmp_path):
    changes, words = BAD[case]
    with pytest.raises(DemonstrationError, match=words) as error:
        us.load(saved(tmp_path, **{"obs": OBS, "acts": ACT} | changes))
    assert "d.npz" in str(error.value)
    assert "\n" not in str(error.value)


def test_all_steps_are_one_episode_if_one_is_asked_for(tmp_path):
    assert us.load(saved(tmp_path, obs=OBS, acts=ACT), episodes=1).lengths.tolist() == [STEPS]


def test_files_of_other_formats_are_left_to_them(tmp_path):
    arrays = files.FORMATS["arrays"]
    assert not arrays.recognises(saved(tmp_path, obs=OBS, acts=ACT, indices=np.array([4, 7])))  # imitation's
    assert not arrays.recognises(saved(tmp_path, observations=OBS, actions=ACT, lengths=LENGTHS))  # our own
    assert not arrays.recognises(tmp_path / "nothing")
    assert not arrays.recognises(tmp_path)


def torch_file():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def pillbox_file():
    buffer = io.BytesIO()
    episode = np.array({"states": OBS, "actions": ACT})
    np.savez(buffer, env="Ant", num_trajs=1, mean_reward=1.0, std_reward=0.0, **{"0": episode})
    return buffer.getvalue()


def objects_file():
    buffer = io.BytesIO()
    np.savez(buffer, [{"obs": 1}, {"obs": 2}])
    return buffer.getvalue()


PICKLES = {
    "d.pkl": (pickle.dumps([{"obs": OBS}]), "is a pickle: "),
    "old.pkl": (pickle.dumps([1, 2], protocol=0), "is a pickle: "),
    "no-ending": (pickle.dumps([{"obs": OBS}], protocol=2), "is a pickle: "),
    "d.pt": (torch_file(), "is a PyTorch file, which is a pickle in a zip archive"),
    "old.pth": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.rest", "is a PyTorch file"),
    "pillbox.npz": (pillbox_file(), "pickled dicts, as the paper's authors wrote them"),
    "objects.npz": (objects_file(), "is an npz file of pickled objects"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_is_refused_in_one_line_that_says_how_to_convert(name, tmp_path):
    data, words = PICKLES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DemonstrationError, match=words) as error:
        us.load(tmp_path / name)
    assert name in str(error.value)
    assert "docs/demonstrations.md#pickles" in str(error.value)
    assert "\n" not in str(error.value)


class Trajectory:
    """As the `imitation` package pickles it."""

    def __init__(self, obs, acts):
        self.obs, self.acts = obs, acts


def test_the_lines_that_convert_pickles_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs/demonstrations.md"
    section = page.read_text(encoding="utf-8").partition("## Pickles")[2].partition("\n## ")[0]
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)]
    assert len(blocks) == 3  # the last one is PyTorch's
    starts = np.cumsum(LENGTHS) - LENGTHS
    episodes = [slice(start, start + length) for start, length in zip(starts, LENGTHS, strict=True)]
    paths = [Trajectory(np.concatenate([OBS[rows], [[7.0, 7, 7]]]), ACT[rows]) for rows in episodes]
    Path("demos.pkl").write_bytes(pickle.dumps(paths))
    dicts = {str(i): np.array({"states": OBS[rows], "actions": ACT[rows]}) for i, rows in enumerate(episodes)}
    np.savez("authors.npz", num_trajs=3, **dicts)
    for block in blocks[:2]:
        exec(compile(block, str(page), "exec"), {})
        d = us.load("demos.npz")
        np.testing.assert_array_equal(d.observations, OBS.astype(np.float32))
        np.testing.assert_array_equal(d.actions, ACT.astype(np.float32))
        assert d.lengths.tolist() == LENGTHS.tolist()
        assert (d.last_observations is None) == (block is blocks[1])


def test_damaged_arrays_are_read_or_refused_by_name(tmp_path):
    outcomes = fuzz_format(FORMAT_TARGETS["arrays"], tmp_path, range(150))
    assert outcomes["refused"] > 75
