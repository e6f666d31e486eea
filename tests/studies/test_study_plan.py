"""What a study says: its file, what is wrong with it and where, and the cells that it comes to."""

import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy
from understudy.core.errors import DemonstrationError, ExtraError, NeedsError, SettingError, UnknownNameError
from understudy.studies import Entry, Hardware, Protocol, Study, Task, check_tasks
from understudy.studies.toml_lines import key_lines

WHOLE = """\
title = "Two on two"

[protocol]
seeds = 2
episodes = 3
steps = 10_000
every = 2_000
rounds_every = 2
holdout = 0.0
staleness = 1
[hardware]
gpus = 0.5
cpus = 2

[[task]]
env = "CartPole-v1"
trajectories = [1, 5]
expert = "bundled"
[[task]]
env = "Pendulum"
trajectories = 5

[[algorithm]]
name = "bc"
settings = { hidden = [8, 8], lr = 1, rounds = 2 }

[[algorithm]]
name = "adril"
preset = "paper"
trajectories = 2
tasks = ["Pendulum"]
[algorithm.settings]
round_steps = 2500
sac.lr = 1e-3   # a player's own

[[algorithm]]
name = "gail"
label = "GAIL by PPO"

[[algorithm]]
name = "dagger"
tasks = ["CartPole-v1"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str = WHOLE) -> Study:
    return Study.load(written(folder, text))


def test_a_file_gives_the_study_that_python_gives(tmp_path: Path) -> None:
    settings = {"round_steps": 2500, "sac": {"lr": 1e-3}}
    assert loaded(tmp_path) == Study(
        name="small",
        title="Two on two",
        tasks=(Task("CartPole-v1", trajectories=(1, 5), expert="bundled"), Task("Pendulum", trajectories=(5,))),
        algorithms=(
            Entry("bc", settings={"hidden": [8, 8], "lr": 1, "rounds": 2}),
            Entry("adril", "paper", settings, trajectories=(2,), tasks=("Pendulum",)),
            Entry("gail", label="GAIL by PPO"),
            Entry("dagger", tasks=("CartPole-v1",)),
        ),
        protocol=Protocol((0, 1), 3, 10_000, 2_000, 2, 0.0, 1),
        hardware=Hardware(0.5, 2),
    )


def test_what_is_not_said_has_defaults(tmp_path: Path) -> None:
    study = loaded(tmp_path, '[[task]]\nenv = "Pendulum"\n[[algorithm]]\nname = "bc"\n')
    assert (study.name, study.title, study.protocol, study.hardware) == ("small", "small", Protocol(), Hardware())
    assert study.tasks == (Task("Pendulum", "bundled", (), None),)
    everything = understudy.load("Pendulum").episodes
    assert {cell.trajectories for cell in study.groups()[0].cells} == {everything}


def test_labels_say_what_differs(tmp_path: Path) -> None:
    assert [entry.label for entry in loaded(tmp_path).algorithms] == [
        "bc, hidden=(8, 8), lr=1.0, rounds=2",
        "adril (paper), round_steps=2500, sac.lr=0.001",
        "GAIL by PPO",
        "dagger",
    ]


def test_settings_become_what_the_fields_are() -> None:
    made = Entry("gail", "sac", {"history": "none", "discriminator_hidden": [16], "sac": {"lr": 1}, "delta": 1})
    algorithm = made.algorithm()
    assert algorithm.history is None
    assert algorithm.discriminator_hidden == (16,)
    assert isinstance(algorithm.sac.lr, float)
    assert algorithm.sac == understudy.algorithms.gail.preset("sac").sac.__class__(lr=1.0)
    assert isinstance(algorithm.delta, float)
    assert algorithm.player == "sac"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "trajectories = [1, 5]",
            "trajectores = [1, 5]",
            17,
            "key 'trajectores' in [[task]]: did you mean 'trajectories'?",
        ),
        ("every = 2_000", "evry = 2_000", 7, "unknown key 'evry' in [protocol]: did you mean 'every'?"),
        ("title =", "titel =", 1, "unknown key 'titel' in a study: did you mean 'title'?"),
        ('name = "adril"', 'name = "adrill"', 28, "unknown algorithm 'adrill': did you mean 'adril'?"),
        ('preset = "paper"', 'preset = "papr"', 29, "unknown preset of adril 'papr': did you mean 'paper'?"),
        ("round_steps = 2500", "round_step = 2500", 33, "'round_step' in adril: did you mean 'round_steps'?"),
        ("sac.lr = 1e-3", "sac.lrr = 1e-3", 34, "unknown hyperparameter 'lrr' in SAC: did you mean 'lr'?"),
        ("lr = 1, rounds", "lrs = 1, rounds", 25, "unknown hyperparameter 'lrs' in bc"),
        ("lr = 1, rounds", "lr = -1, rounds", 25, "lr is -1.0: a number above 0 is needed"),
        ("sac.lr = 1e-3", "sac.lr = -1e-3", 34, "sac: lr is -0.001"),
        ("[8, 8]", '[8, "x"]', 25, "hidden[1] is 'x': a whole number is needed"),
        ("round_steps = 2500", "round_steps = 1e3", 33, "round_steps is 1000.0: a whole number is needed"),
        ("seeds = 2", 'seeds = "two"', 4, "seeds is 'two'"),
        ("seeds = 2", "seeds = 0", 4, "seeds is 0: a whole number of at least 1 is needed"),
        ("seeds = 2", "seeds = [1, 1]", 4, "each value can be given once"),
        ("episodes = 3", "episodes = 0", 5, "episodes is 0: a whole number of at least 1"),
        ("every = 2_000", "every = 20_000", 7, "more than the 10000 steps"),
        ("staleness = 1", "staleness = 2", 10, "staleness is 2: choose 0 or 1"),
        ("holdout = 0.0", "holdout = 0.7", 9, "from 0 to 0.5"),
        ("gpus = 0.5", "gpus = nan", 12, "gpus is nan"),
        ("trajectories = 5", "trajectories = [5, 5]", 21, "each number can be given once"),
        ('env = "Pendulum"', "env = 3", 20, "env is 3: a text is needed"),
        ('env = "Pendulum"', 'env = "CartPole-v1"', 20, "env 'CartPole-v1' is on line 16 already"),
        ('tasks = ["Pendulum"]', 'tasks = ["Pendulm"]', 31, "unknown task 'Pendulm'"),
        ('label = "GAIL by PPO"', 'label = "GAIL by PPO', 38, "not TOML"),
        ('env = "Pendulum"\n', "", 19, "[[task]] has no env"),
        ("[hardware]", "[hardwear]", 11, "unknown key 'hardwear' in a study: did you mean 'hardware'?"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert WHOLE.count(old) == 1
    with pytest.raises((SettingError, UnknownNameError), match=re.escape(words)) as error:
        loaded(tmp_path, WHOLE.replace(old, new))
    assert str(error.value).startswith(f"small.toml, line {line}: ")
    assert "\n" not in str(error.value)


def test_a_study_without_tasks_or_algorithms_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"small.toml: no \[\[task\]\]"):
        loaded(tmp_path, "")
    with pytest.raises(SettingError, match=r"no \[\[algorithm\]\]"):
        loaded(tmp_path, '[[task]]\nenv = "Pendulum"\n')
    with pytest.raises(SettingError, match=r"line 1: task is not a list of tables: write \[\[task\]\]"):
        loaded(tmp_path, '[task]\nenv = "Pendulum"\n')
    with pytest.raises(SettingError, match="has no algorithms"):
        Study("empty", tasks=(Task("Pendulum"),))
    with pytest.raises(SettingError, match="no study file"):
        Study.load(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "x"\ntitle = "\xe9"\n')
    with pytest.raises(SettingError, match=r"latin.toml, line 2: not UTF-8"):
        Study.load(tmp_path / "latin.toml")


def test_lines_are_found_in_any_toml() -> None:
    text = '''\
a."b c" = """
[not.a.table]
x = 1 \\""" # still the text
"""
[[t]]   # one
x = [ 1, "]", # a comment with ]
  { y = '}', z = { w = 2 } },
]
[t.u]
"v" = 1979-05-27T07:32:00Z
[[t]]
u.v = """"quoted""""
[last]'''
    lines = key_lines(text)
    expected = {("a", "b c"): 1, ("t", 0): 5, ("t", 0, "x"): 6, ("t", 0, "x", 2, "z", "w"): 7, ("t", 0, "u"): 9}
    expected |= {("t", 0, "u", "v"): 10, ("t", 1): 11, ("t", 1, "u", "v"): 12, ("last",): 13}
    assert expected.items() <= lines.items()
    assert ("not",) not in lines


def test_cells_are_grouped_by_program_and_fitted_to_the_protocol(tmp_path: Path) -> None:
    planned = loaded(tmp_path).groups()
    assert [(g.entry.name, g.task.env, len(g.cells)) for g in planned] == [
        ("bc", "CartPole-v1", 4),
        ("bc", "Pendulum", 2),
        ("adril", "Pendulum", 2),
        ("gail", "CartPole-v1", 4),
        ("gail", "Pendulum", 2),
        ("dagger", "CartPole-v1", 4),
    ]
    bc, _, adril, gail, _, dagger = planned
    # adril: 40 turns of 64 steps reach 2,500, so a round has 2,560 and four of them reach 10,000
    assert (adril.algorithm.rounds, adril.algorithm.staleness) == (4, 1)
    assert (gail.algorithm.rounds, gail.algorithm.staleness) == (2, 0)
    assert bc.algorithm.rounds == 2
    protocols = [g.cells[0].asked["protocol"] for g in (bc, adril, dagger)]
    names = ("steps", "every", "rounds_every", "episodes", "holdout")
    assert [tuple(p[name] for name in names) for p in protocols] == [
        (None, None, None, 3, 0.0),
        (10_000, 2_000, None, 3, 0.0),
        (None, None, 2, 3, 0.0),
    ]
    assert bc.cells[0].asked["task"]["expert"] is None
    assert re.fullmatch("[0-9a-f]{64}", dagger.cells[0].asked["task"]["expert"])
    assert bc.cells[0].asked["algorithm"]["settings"] == {"hidden": [8, 8], "lr": 1.0, "rounds": 2}
    assert bc.cells[0].asked["algorithm"]["hyperparameters"]["steps"] == 500
    assert {(cell.trajectories, cell.seed) for cell in bc.cells} == {(1, 0), (1, 1), (5, 0), (5, 1)}
    assert bc.shown == {"label": bc.entry.label, "demos": "bundled", "expert_return": 500.0}
    keys = [cell.key for group in planned for cell in group.cells]
    assert len({*keys, *(group.key for group in planned)}) == len(keys) + len(planned)


def test_settings_of_one_algorithm_go_before_the_protocol() -> None:
    entry = Entry("adril", settings={"rounds": 3, "staleness": 0})
    (group,) = Study(
        "s", tasks=(Task("Pendulum"),), algorithms=(entry,), protocol=Protocol(steps=9999, staleness=1)
    ).groups()
    assert (group.algorithm.rounds, group.algorithm.staleness) == (3, 0)
    assert group.cells[0].asked["protocol"]["steps"] is None


def keys(study: Study) -> dict[tuple[str, int, int], str]:
    return {(g.entry.name, c.trajectories, c.seed): c.key for g in study.groups() for c in g.cells}


def test_a_change_touches_only_the_cells_it_concerns(tmp_path: Path) -> None:
    text = '[protocol]\nseeds = 2\n[[task]]\nenv = "Pendulum"\ntrajectories = [1, 2]\n'
    text += '[[algorithm]]\nname = "bc"\n[[algorithm]]\nname = "adril"\n'
    before = keys(loaded(tmp_path, text))
    assert keys(loaded(tmp_path, text)) == before
    assert keys(loaded(tmp_path, text.replace('"bc"', '"bc"\nlabel = "cloning"'))) == before
    assert keys(loaded(tmp_path, text + "[hardware]\ncpus = 4\n")) == before
    more = keys(loaded(tmp_path, text.replace("seeds = 2", "seeds = 3").replace("[1, 2]", "[1, 2, 3]")))
    assert before.items() < more.items()
    longer = keys(loaded(tmp_path, text.replace("seeds = 2", "seeds = 2\nsteps = 5000")))
    other = keys(loaded(tmp_path, text.replace('"adril"', '"adril"\nsettings = { sac = { lr = 1e-3 } }')))
    for changed in (longer, other):
        assert {name for name, key in changed.items() if before[name] != key} == {n for n in before if n[0] == "adril"}
    played = keys(loaded(tmp_path, text.replace("seeds = 2", "seeds = 2\nepisodes = 20")))
    assert not set(played.values()) & set(before.values())


def test_other_demonstrations_are_other_cells_and_are_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = understudy.load("Pendulum", 3)
    (tmp_path / "data").mkdir()
    shown.save(str(tmp_path / "data" / "own.npz"))
    text = '[[task]]\nenv = "Pendulum"\ntrajectories = 2\ndemos = "data/own.npz"\n'
    text += '[[algorithm]]\nname = "bc"\n[[algorithm]]\nname = "advil"\n'
    count, real = [], understudy.studies.groups.load
    monkeypatch.setattr("understudy.studies.groups.load", lambda name: (count.append(name), real(name))[1])
    monkeypatch.chdir("/")
    study = loaded(tmp_path, text)
    before = keys(study)
    assert count == [str(tmp_path / "data" / "own.npz")]
    assert study.groups()[0].shown["demos"] == "own.npz"
    shown.actions[0] -= np.float32(0.125)
    shown.save(str(tmp_path / "data" / "own.npz"))
    assert not set(keys(study).values()) & set(before.values())
    with pytest.raises(DemonstrationError, match="no file"):
        loaded(tmp_path, text.replace("own.npz", "none.npz")).groups()


def test_more_trajectories_than_there_are_name_both_numbers() -> None:
    shown = {"Pendulum": understudy.load("Pendulum", 3)}
    study = Study("s", tasks=(Task("Pendulum", trajectories=(2, 4)),), algorithms=(Entry("bc"),))
    with pytest.raises(SettingError, match=r"asks for 4 trajectories of Pendulum, and its demonstrations have 3"):
        study.groups(shown)


def test_an_expert_that_is_missing_is_known_before_anything_runs() -> None:
    with pytest.raises(NeedsError, match="DAgger asks an expert, and task Pendulum has none"):
        Study("s", tasks=(Task("Pendulum"),), algorithms=(Entry("dagger"),)).groups()
    with pytest.raises(UnknownNameError, match="unknown expert 'Pendulm': did you mean 'Pendulum'"):
        Study("s", tasks=(Task("Pendulum", expert="Pendulm"),), algorithms=(Entry("dagger"),)).groups()


def test_the_same_cells_or_the_same_name_twice_are_refused() -> None:
    task = (Task("Pendulum", trajectories=(1,)),)
    with pytest.raises(SettingError, match="two algorithms are called 'bc' on Pendulum"):
        Study("s", tasks=task, algorithms=(Entry("bc"), Entry("bc", trajectories=(2,))))
    same = Study("s", tasks=task, algorithms=(Entry("bc"), Entry("bc", label="again")))
    with pytest.raises(SettingError, match="'bc' and 'again' are the same algorithm with 1 trajectories of Pendulum"):
        same.groups()


def test_a_task_whose_simulator_is_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study("s", tasks=(Task("Pendulum"), Task("HopperBulletEnv-v0")), algorithms=(Entry("bc"),))
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(ExtraError, match=r"HopperBulletEnv-v0 needs PyBullet: pip install 'understudy\[bullet\]'"):
        check_tasks(study)
    assert set(check_tasks(Study("s", tasks=(Task("Pendulum"),), algorithms=(Entry("bc"),)))) == {"Pendulum"}


def test_studies_and_groups_travel_between_processes(tmp_path: Path) -> None:
    planned = loaded(tmp_path).groups()
    again = pickle.loads(pickle.dumps(planned))  # noqa: S301 - our own bytes
    assert [group.key for group in again] == [group.key for group in planned]
    assert again[2].algorithm == planned[2].algorithm
