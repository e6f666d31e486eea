"""Study files and their errors, and the cells of a study."""

import json
import pickle
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import understudy
from understudy.cli.main import main
from understudy.core.errors import (
    DemonstrationError,
    ExtraError,
    NeedsError,
    SettingError,
    UnderstudyError,
    UnknownNameError,
)
from understudy.core.imports import allow_import
from understudy.core.notices import UnderstudyWarning
from understudy.studies import Entry, Hardware, Protocol, Study, Task
from understudy.studies.groups import check_evaluations, load_demonstrations, make_environments
from understudy.studies.reading import from_dict

WHOLE = """\
title = "Two on two"

[protocol]
seeds = 2
eval_episodes = 3
steps = 10_000
eval_every = 2_000
eval_every_rounds = 2
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
sac.lr = 1e-3   # a setting of the player

[[algorithm]]
name = "gail"
label = "GAIL by PPO"

[[algorithm]]
name = "dagger"
tasks = ["CartPole-v1"]
"""


def write_file(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load_study(folder: Path, text: str = WHOLE) -> Study:
    return Study.load(write_file(folder, text))


def test_a_study_file_equals_a_study_made_in_python(tmp_path: Path) -> None:
    settings = {"round_steps": 2500, "sac": {"lr": 1e-3}}
    assert load_study(tmp_path) == Study(
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


def test_missing_keys_have_defaults(tmp_path: Path) -> None:
    study = load_study(tmp_path, '[[task]]\nenv = "Pendulum"\n[[algorithm]]\nname = "bc"\n')
    assert (study.name, study.title, study.protocol, study.hardware) == ("small", "small", Protocol(), Hardware())
    assert study.tasks == (Task("Pendulum", "bundled", (), None),)
    all_episodes = understudy.load("Pendulum").episodes
    assert {cell.trajectories for cell in study.groups()[0].cells} == {all_episodes}


def test_default_labels_name_preset_and_settings(tmp_path: Path) -> None:
    assert [entry.label for entry in load_study(tmp_path).algorithms] == [
        "bc, hidden=(8, 8), lr=1.0, rounds=2",
        "adril (paper), round_steps=2500, sac.lr=0.001",
        "GAIL by PPO",
        "dagger",
    ]


def test_settings_are_converted_to_the_types_of_the_fields() -> None:
    entry = Entry("gail", "sac", {"buffer_size": "none", "discriminator_hidden": [16], "sac": {"lr": 1}, "delta": 1})
    algorithm = entry.algorithm()
    assert algorithm.buffer_size is None
    assert algorithm.discriminator_hidden == (16,)
    assert isinstance(algorithm.sac.lr, float)
    assert algorithm.sac == understudy.rl.SAC(lr=1.0)
    assert isinstance(algorithm.delta, float)
    assert algorithm.player == "sac"


TASK, ALGORITHM, PROTOCOL = "[[task]] ", "[[algorithm]] ", "[protocol]"


@pytest.mark.parametrize(
    ("old", "new", "place", "named"),
    [
        ("trajectories = [1, 5]", "trajectores = [1, 5]", TASK + "1", "'trajectories'"),
        ("eval_every = 2_000", "eval_evry = 2_000", PROTOCOL, "'eval_every'"),
        ("title =", "titel =", "", "'title'"),
        ('name = "adril"', 'name = "adrill"', ALGORITHM + "2", "'adril'"),
        ('name = "gail"\n', "", ALGORITHM + "3", "name is missing"),
        ('preset = "paper"', 'preset = "papr"', ALGORITHM + "2", "'paper'"),
        ("round_steps = 2500", "round_step = 2500", ALGORITHM + "2", "'round_steps'"),
        ("sac.lr = 1e-3", "sac.lrr = 1e-3", ALGORITHM + "2", "'lr'"),
        ("lr = 1, rounds", "lrs = 1, rounds", ALGORITHM + "1", "'lrs'"),
        ("lr = 1, rounds", "lr = -1, rounds", ALGORITHM + "1", "lr is -1.0"),
        ("lr = 1, rounds", 'lr = "x", rounds', ALGORITHM + "1", "lr is 'x'"),
        ("sac.lr = 1e-3", "sac.lr = -1e-3", ALGORITHM + "2", "sac: lr is -0.001"),
        ("sac.lr = 1e-3", "sac = 1e-3", ALGORITHM + "2", "sac is 0.001"),
        ("[8, 8]", '[8, "x"]', ALGORITHM + "1", "hidden[1] is 'x'"),
        ("round_steps = 2500", "round_steps = 1e3", ALGORITHM + "2", "round_steps is 1000.0"),
        ("seeds = 2", 'seeds = "two"', PROTOCOL, "seeds is 'two'"),
        ("seeds = 2", "seeds = 0", PROTOCOL, "seeds is 0"),
        ("seeds = 2", "seeds = [1, 1]", PROTOCOL, "seeds is [1, 1]"),
        ("eval_episodes = 3", "eval_episodes = 0", PROTOCOL, "eval_episodes is 0"),
        ("eval_every = 2_000", "eval_every = 20_000", PROTOCOL, "eval_every is 20000"),
        ("staleness = 1", "staleness = 2", PROTOCOL, "staleness is 2"),
        ("holdout = 0.0", "holdout = 0.7", PROTOCOL, "holdout is 0.7"),
        ("gpus = 0.5", "gpus = nan", "[hardware]", "gpus is nan"),
        ("trajectories = 5", "trajectories = [5, 5]", TASK + "2", "trajectories is [5, 5]"),
        ('env = "Pendulum"', "env = 3", TASK + "2", "env is 3"),
        ('env = "Pendulum"\n', "", TASK + "2", "env is missing"),
        ('env = "Pendulum"', 'env = "CartPole-v1"', "", "'CartPole-v1'"),
        ('tasks = ["Pendulum"]', 'tasks = ["Pendulm"]', "", "'Pendulm'"),
        ("[hardware]", "[hardwear]", "", "'hardware'"),
        ('label = "GAIL by PPO"', 'label = "GAIL by PPO', "", "line 38"),
    ],
)
def test_errors_name_the_file_the_table_and_the_key(tmp_path: Path, old: str, new: str, place: str, named: str) -> None:
    assert WHOLE.count(old) == 1
    with pytest.raises((SettingError, UnknownNameError), match=re.escape(named)) as error:
        load_study(tmp_path, WHOLE.replace(old, new))
    assert str(error.value).startswith(f"small.toml: {place}")
    assert "\n" not in str(error.value)


def test_a_study_without_tasks_or_algorithms_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"small.toml: .*\[\[task\]\]"):
        load_study(tmp_path, "")
    with pytest.raises(SettingError, match=r"\[\[algorithm\]\]"):
        load_study(tmp_path, '[[task]]\nenv = "Pendulum"\n')
    with pytest.raises(SettingError, match=r"\[\[task\]\]"):
        load_study(tmp_path, '[task]\nenv = "Pendulum"\n')
    with pytest.raises(SettingError, match=r"small.toml: \[protocol\]"):
        load_study(tmp_path, 'protocol = 3\n[[task]]\nenv = "Pendulum"\n[[algorithm]]\nname = "bc"\n')
    with pytest.raises(SettingError, match="algorithms"):
        Study("empty", tasks=(Task("Pendulum"),))
    with pytest.raises(SettingError, match=r"nothing\.toml"):
        Study.load(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "x"\ntitle = "\xe9"\n')
    with pytest.raises(SettingError, match=r"latin.toml.*utf-8"):
        Study.load(tmp_path / "latin.toml")


def test_cells_are_grouped_by_program_and_follow_the_protocol(tmp_path: Path) -> None:
    groups = load_study(tmp_path).groups()
    assert [(g.entry.name, g.task.env, len(g.cells)) for g in groups] == [
        ("bc", "CartPole-v1", 4),
        ("bc", "Pendulum", 2),
        ("adril", "Pendulum", 2),
        ("gail", "CartPole-v1", 4),
        ("gail", "Pendulum", 2),
        ("dagger", "CartPole-v1", 4),
    ]
    bc, _, adril, gail, _, dagger = groups
    # adril: 40 updates of 64 steps make rounds of 2,560 steps, and four rounds reach 10,000
    assert (adril.algorithm.rounds, adril.algorithm.staleness) == (4, 1)
    assert (gail.algorithm.rounds, gail.algorithm.staleness) == (2, 0)
    assert bc.algorithm.rounds == 2
    protocols = [g.cells[0].config["protocol"] for g in (bc, adril, dagger)]
    names = ("steps", "eval_every", "eval_every_rounds", "eval_episodes", "holdout")
    assert [tuple(p[name] for name in names) for p in protocols] == [
        (None, None, None, 3, 0.0),
        (10_000, 2_000, None, 3, 0.0),
        (None, None, 2, 3, 0.0),
    ]
    assert bc.cells[0].config["task"]["expert"] is None
    assert re.fullmatch("[0-9a-f]{64}", dagger.cells[0].config["task"]["expert"])
    assert bc.cells[0].config["algorithm"]["settings"] == {"hidden": [8, 8], "lr": 1.0, "rounds": 2}
    assert bc.cells[0].config["algorithm"]["hyperparameters"]["gradient_steps"] == 500
    assert {(cell.trajectories, cell.seed) for cell in bc.cells} == {(1, 0), (1, 1), (5, 0), (5, 1)}
    assert bc.display == {"label": bc.entry.label, "demos": "bundled", "expert_return": 500.0}
    keys = [cell.key for group in groups for cell in group.cells]
    assert len({*keys, *(group.key for group in groups)}) == len(keys) + len(groups)


def test_settings_of_an_algorithm_take_precedence_over_the_protocol() -> None:
    entry = Entry("adril", settings={"rounds": 3, "staleness": 0})
    (group,) = Study(
        "s", tasks=(Task("Pendulum"),), algorithms=(entry,), protocol=Protocol(steps=9999, staleness=1)
    ).groups()
    assert (group.algorithm.rounds, group.algorithm.staleness) == (3, 0)
    assert group.cells[0].config["protocol"]["steps"] is None


def keys(study: Study) -> dict[tuple[str, int, int], str]:
    return {(g.entry.name, c.trajectories, c.seed): c.key for g in study.groups() for c in g.cells}


def test_a_change_changes_only_the_keys_of_affected_cells(tmp_path: Path) -> None:
    text = '[protocol]\nseeds = 2\n[[task]]\nenv = "Pendulum"\ntrajectories = [1, 2]\n'
    text += '[[algorithm]]\nname = "bc"\n[[algorithm]]\nname = "adril"\n'
    before = keys(load_study(tmp_path, text))
    assert keys(load_study(tmp_path, text)) == before
    assert keys(load_study(tmp_path, text.replace('"bc"', '"bc"\nlabel = "cloning"'))) == before
    assert keys(load_study(tmp_path, text + "[hardware]\ncpus = 4\nstep_timeout = 5\n")) == before
    more = keys(load_study(tmp_path, text.replace("seeds = 2", "seeds = 3").replace("[1, 2]", "[1, 2, 3]")))
    assert before.items() < more.items()
    longer = keys(load_study(tmp_path, text.replace("seeds = 2", "seeds = 2\nsteps = 5000")))
    other = keys(load_study(tmp_path, text.replace('"adril"', '"adril"\nsettings = { sac = { lr = 1e-3 } }')))
    for changed in (longer, other):
        assert {name for name, key in changed.items() if before[name] != key} == {n for n in before if n[0] == "adril"}
    evaluated = keys(load_study(tmp_path, text.replace("seeds = 2", "seeds = 2\neval_episodes = 20")))
    assert not set(evaluated.values()) & set(before.values())


def test_changed_demonstrations_change_the_keys_and_are_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demos = understudy.load("Pendulum", 3)
    (tmp_path / "data").mkdir()
    demos.save(str(tmp_path / "data" / "own.npz"))
    text = '[[task]]\nenv = "Pendulum"\ntrajectories = 2\ndemos = "data/own.npz"\n'
    text += '[[algorithm]]\nname = "bc"\n[[algorithm]]\nname = "advil"\n'
    count, real = [], understudy.studies.groups.load
    monkeypatch.setattr("understudy.studies.groups.load", lambda name: (count.append(name), real(name))[1])
    monkeypatch.chdir("/")
    study = load_study(tmp_path, text)
    before = keys(study)
    assert count == [str(tmp_path / "data" / "own.npz")]
    assert study.groups()[0].display["demos"] == "own.npz"
    demos.actions[0] -= np.float32(0.125)
    demos.save(str(tmp_path / "data" / "own.npz"))
    assert not set(keys(study).values()) & set(before.values())
    with pytest.raises(DemonstrationError, match=r"none\.npz"):
        load_study(tmp_path, text.replace("own.npz", "none.npz")).groups()


def test_too_many_trajectories_are_rejected_with_both_numbers() -> None:
    demos = {"Pendulum": understudy.load("Pendulum", 3)}
    study = Study("s", tasks=(Task("Pendulum", trajectories=(2, 4)),), algorithms=(Entry("bc"),))
    with pytest.raises(SettingError, match=r"is 4: .* 3"):
        study.groups(demos)


def test_bundled_demonstrations_of_another_expert_are_not_taken_silently(tmp_path):
    understudy.load_expert("CartPole-v1").save(tmp_path / "mine.npz")
    given = Task("CartPole-v1", trajectories=(1,), expert=str(tmp_path / "mine.npz"))
    with pytest.warns(UnderstudyWarning, match="the bundled demonstrations are those of another one"):
        load_demonstrations(Study("s", tasks=(given,), algorithms=(Entry("dagger"),)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = Task("CartPole-v1", trajectories=(1,), expert="bundled")
        load_demonstrations(Study("s", tasks=(own,), algorithms=(Entry("dagger"),)))


def test_a_missing_or_unknown_expert_is_rejected() -> None:
    with pytest.raises(NeedsError, match=r"DAgger .* Pendulum"):
        Study("s", tasks=(Task("Pendulum"),), algorithms=(Entry("dagger"),)).groups()
    with pytest.raises(UnknownNameError, match=r"'Pendulm'.*'Pendulum'"):
        Study("s", tasks=(Task("Pendulum", expert="Pendulm"),), algorithms=(Entry("dagger"),)).groups()


def test_equal_labels_and_equal_cells_are_rejected() -> None:
    task = (Task("Pendulum", trajectories=(1,)),)
    with pytest.raises(SettingError, match="label 'bc'"):
        Study("s", tasks=task, algorithms=(Entry("bc"), Entry("bc", trajectories=(2,))))
    same = Study("s", tasks=task, algorithms=(Entry("bc"), Entry("bc", label="again")))
    with pytest.raises(SettingError, match="'bc' and 'again'"):
        same.groups()


def test_a_missing_simulator_is_an_extra_error_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study("s", tasks=(Task("Pendulum"), Task("HopperBulletEnv-v0")), algorithms=(Entry("bc"),))
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(ExtraError, match=r"pip install 'understudy-il\[bullet\]'"):
        make_environments(study)
    assert set(make_environments(Study("s", tasks=(Task("Pendulum"),), algorithms=(Entry("bc"),)))) == {"Pendulum"}


def test_studies_and_groups_can_be_pickled(tmp_path: Path) -> None:
    groups = load_study(tmp_path).groups()
    again = pickle.loads(pickle.dumps(groups))  # noqa: S301 - our own bytes
    assert [group.key for group in again] == [group.key for group in groups]
    assert again[2].algorithm == groups[2].algorithm


def test_algorithms_outside_the_package_are_named_by_module_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "third_party.py").write_text("from understudy.algorithms.off_q.bc import BC\n\nclass Mine(BC): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    allow_import("third_party")
    text = '[protocol]\nseeds = 1\n[[task]]\nenv = "Pendulum"\n[[algorithm]]\nname = "third_party:Mine"\n'
    (group,) = load_study(tmp_path, text + "settings = { rounds = 2 }\n").groups()
    assert (type(group.algorithm).__name__, group.algorithm.rounds) == ("Mine", 2)
    assert group.name == "third_party:Mine, rounds=2 on Pendulum"
    with pytest.raises(UnderstudyError, match=r"small\.toml: \[\[algorithm\]\] 1.*Yours"):
        load_study(tmp_path, text.replace("Mine", "Yours"))
    with pytest.raises(NeedsError, match=r"--import fourth_party"):
        load_study(tmp_path, text.replace("third_party", "fourth_party"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "adril"', 'name = "stranger:Algorithm"'),
        ('env = "Pendulum"', 'env = "stranger:Pendulum-v9"'),
        ('env = "Pendulum"', 'env = "Pendulum"\nexpert = "stranger:act"'),
    ],
)
def test_code_that_a_file_names_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    (tmp_path / "stranger.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NeedsError, match=r"small\.toml.*--import stranger"):
        load_study(tmp_path, WHOLE.replace(old, new))
    stored = load_study(tmp_path).to_dict()
    stored["algorithms"][0]["name"] = "stranger:Algorithm"
    with pytest.raises(NeedsError, match=r"study\.json.*--import stranger"):
        from_dict(stored, tmp_path / "study.json")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "..", ".hidden", "/etc", "x" * 101, " ", "a\x1b[2Jb", "a\nb", "a\\b"]
)
def test_a_studys_name_is_one_path_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    text = f'name = {json.dumps(name)}\n[[task]]\nenv = "Pendulum"\n[[algorithm]]\nname = "bc"\n'
    path = write_file(Path.cwd(), text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SettingError, match="name is") as error:
        Study.load(path)
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)
    monkeypatch.setattr("sys.argv", ["understudy", "study", "run", path.name])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("seeds = 2", "seeds = 100_000_000", "seeds is 100000000: at most 10000"),
        ("seeds = 2", f"seeds = {list(range(10_001))}", "seeds is 10001: at most 10000"),
        ("seeds = 2", f"seeds = 0x{'f' * 4000}", "2**63"),
        ("trajectories = 5", f"trajectories = [{10**13}]", "trajectories is 10000000000000: at most"),
        ("eval_episodes = 3", f"eval_episodes = {10**12}", "eval_episodes is 1000000000000: at most 1000000"),
        ("eval_every = 2_000", f"eval_every = {10**15}", "eval_every is 1000000000000000: at most"),
        ("gpus = 0.5", "gpus = 1e300", "gpus is 1e+300: at most 10000"),
        ("cpus = 2", f"cpus = {10**9}", "cpus is 1000000000: at most 10000"),
        ("seeds = 2", f"seeds = {'[' * 5000}{']' * 5000}", "not a TOML file"),
        ("seeds = 2", f"seeds = {'[' * 50}{']' * 50}", "nested"),
        ("seeds = 2", f"seeds = {'9' * 5000}", "not a TOML file"),
        ("seeds = 2", "seeds = 2026-01-01", "seeds is"),
        ("lr = 1, rounds", "lr = 1e308, rounds", "lr is 1e+308: a number of at most 3e+38"),
        ("[8, 8]", f"{[1] * 3000}", "hidden has 3000 layers: at most 100"),
        ("[8, 8]", "1979-05-27T07:32:00Z", "hidden is"),
        ('env = "Pendulum"', f'env = "{"x" * 5000}"', "env has 5000 characters"),
        ('env = "Pendulum"', f'env = "{"x" * 300}"', "255 bytes"),
    ],
)
def test_numbers_that_no_machine_can_serve_and_wild_values_are_one_line(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(named)) as error:
        load_study(tmp_path, WHOLE.replace(old, new))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 700


def test_a_study_with_too_many_cells_or_episodes_is_refused_before_it_is_planned() -> None:
    entries = [Entry("bc", settings={"rounds": rounds}) for rounds in range(1, 12)]
    study = Study("big", tasks=(Task("Pendulum"),), algorithms=entries, protocol=Protocol(seeds=10_000))
    with pytest.raises(SettingError, match="110000 cells: at most 100000"):
        study.groups()
    long = Study("long", tasks=(Task("Pendulum"),), algorithms=entries[:1], protocol=Protocol(eval_episodes=10**6))
    env = make_environments(long)["Pendulum"]
    endless = SimpleNamespace(name="Pendulum", spec=replace(env.spec, horizon=10**6))
    with pytest.raises(SettingError, match=r"eval_episodes = 1000000 on Pendulum needs .* of memory"):
        check_evaluations(long, {"Pendulum": endless})


# --- sweeps -----------------------------------------------------------------------------------------------------------

SWEPT = """
[[task]]
env = "Pendulum"
[[algorithm]]
name = "bc"
%s
"""


def swept(tmp_path, lines):
    path = tmp_path / "s.toml"
    path.write_text(SWEPT % lines)
    return Study.load(path)


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ("lr = [1e-4, 3e-4]", ["bc, lr=0.0001", "bc, lr=0.0003"]),
        ("hidden = [64, 32]", ["bc, hidden=(64, 32)"]),
        ("hidden = [[64, 32], [8]]", ["bc, hidden=(64, 32)", "bc, hidden=(8,)"]),
        ("rounds = 3, decay = [true, false]", ["bc, rounds=3, decay=True", "bc, rounds=3, decay=False"]),
        (
            "loss = ['squared', 'likelihood'], lr = [1, 2]",
            [f"bc, loss={loss}, lr={lr}" for loss in ("squared", "likelihood") for lr in (1.0, 2.0)],
        ),
    ],
)
def test_a_list_of_values_is_an_algorithm_for_each(tmp_path, settings, labels):
    study = swept(tmp_path, f"settings = {{ {settings} }}")
    assert [entry.label for entry in study.algorithms] == labels
    assert Study.from_dict(study.to_dict()) == study
    assert len({cell.key for group in study.groups() for cell in group.cells}) == 5 * len(labels)


def test_a_label_gets_the_values_of_the_sweep(tmp_path):
    study = swept(tmp_path, 'label = "BC"\nsettings = { rounds = 2, lr = [1e-4, 3e-4] }')
    assert [entry.label for entry in study.algorithms] == ["BC lr=0.0001", "BC lr=0.0003"]
    assert [entry.label for entry in Entry.sweep("bc", label="BC", settings={"rounds": 2})] == ["BC"]


def test_a_players_settings_can_be_swept():
    entries = Entry.sweep("adril", settings={"sac": {"lr": [1e-3, 1e-4], "hidden": [8]}}, label="A")
    assert [entry.label for entry in entries] == ["A sac.lr=0.001", "A sac.lr=0.0001"]
    assert [entry.algorithm().sac.lr for entry in entries] == [1e-3, 1e-4]
    assert {entry.algorithm().sac.hidden for entry in entries} == {(8,)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("lr = []", "lr is []: at least one value is needed"),
        ("lr = [1e-3, 1e-3]", "lr has the value 0.001 twice"),
        ("lr = [1e-3, 'x']", "lr is 'x': a finite number is needed"),
        ("lr = [[1e-3]]", "lr is [0.001]: a finite number is needed"),
        ("hidden = [[64], 32]", "hidden[0] is [64]: a whole number is needed"),
        ("nope = [1, 2]", "unknown hyperparameter 'nope'"),
        (f"lr = {list(range(1, 202))}", "201 combinations of settings (201 of lr): at most 200 are allowed"),
        (f"lr = {list(range(1, 31))}, weight_decay = {list(range(30))}", "900 combinations"),
    ],
)
def test_a_wrong_sweep_is_named(tmp_path, settings, message):
    with pytest.raises(UnderstudyError, match=re.escape(f"s.toml: [[algorithm]] 1: {message}")):
        swept(tmp_path, f"settings = {{ {settings} }}")


def test_a_stored_study_has_no_sweeps(tmp_path):
    values = swept(tmp_path, "settings = { lr = [1e-4, 3e-4] }").to_dict()
    values["algorithms"][0]["settings"]["lr"] = [1e-4, 3e-4]
    with pytest.raises(SettingError, match="a finite number is needed"):
        Study.from_dict(values)


def test_demonstrations_of_a_study_have_any_format(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)
    demos, folder = understudy.load("Pendulum", 3), tmp_path / "study"
    folder.mkdir()
    demos.save(f"arrays:{folder / 'arrays'}")
    demos.save("minari:own/pendulum-v0")
    for name in ("arrays", "arrays:arrays", "minari:own/pendulum-v0", "Pendulum"):
        (folder / "a.toml").write_text(f'[[task]]\nenv = "Pendulum"\ndemos = "{name}"\n[[algorithm]]\nname = "bc"\n')
        (loaded,) = load_demonstrations(Study.load(folder / "a.toml")).values()
        assert loaded.episodes == (25 if name == "Pendulum" else 3)


def test_a_task_without_bundled_demonstrations_says_how_to_record_them(tmp_path):
    text = '[[task]]\nenv = "Acrobot-v1"\nexpert = "bundled"\n[[algorithm]]\nname = "bc"\n'
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(NeedsError, match="understudy demos record Acrobot-v1 --expert EXPERT"):
        load_demonstrations(Study.load(tmp_path / "a.toml"))


def test_a_spec_without_inputs_of_the_critic_does_not_name_them() -> None:
    """Its text is part of the digests that name stored cells: a new field must not make them unknown."""
    spec = understudy.Spec((2,), understudy.Discrete(3), 9)
    plain = "Spec(obs_shape=(2,), action=Discrete(n=3), horizon=9, policy_obs=None, obs_parts=())"
    assert repr(spec) == plain
    assert repr(replace(spec, critic_obs=(1,))) == f"{plain[:-1]}, critic_obs=(1,))"


@pytest.mark.parametrize("change", [{"env_args": {"g": 5.0}}, {"wrap": ("gymnasium.wrappers:ClipAction",)}], ids=str)
def test_bundled_demonstrations_are_not_those_of_a_changed_environment(change: dict[str, Any]) -> None:
    entries = (Entry("bc"),)
    with pytest.raises(NeedsError, match=r'come from the environment without: .*demos = "Pendulum-v1"'):
        Study("s", tasks=(Task("Pendulum-v1", **change),), algorithms=entries).groups()
    named = Study("s", tasks=(Task("Pendulum-v1", "Pendulum-v1", **change),), algorithms=entries)
    plain = Study("s", tasks=(Task("Pendulum-v1"),), algorithms=entries)
    keys = [{cell.key for group in study.groups() for cell in group.cells} for study in (named, plain)]
    assert not keys[0] & keys[1]


@pytest.mark.parametrize(
    ("demos", "resolved"),
    [
        ("d.npz", "{folder}/d.npz"),
        ("npz:d.npz", "npz:{folder}/d.npz"),
        ("minari:D4RL/door/human-v2", "minari:D4RL/door/human-v2"),
        ("CartPole-v1", "CartPole-v1"),
        ("absent.npz", "{folder}/absent.npz"),
    ],
)
def test_demonstrations_in_a_file_are_paths_names_or_formats(tmp_path: Path, demos: str, resolved: str) -> None:
    understudy.load("Pendulum", 1).save(tmp_path / "d.npz")
    study = load_study(tmp_path, f'[[task]]\nenv = "Pendulum"\ndemos = "{demos}"\n[[algorithm]]\nname = "bc"\n')
    assert study.tasks[0].demos == resolved.format(folder=tmp_path)
