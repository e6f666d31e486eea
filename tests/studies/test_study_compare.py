"""`study report --compare A B`: pairs, differences, what only one study has, and bad input."""

import csv
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import understudy as us
from support.study_directories import TEXT, make_directory, policy, record
from support.study_records import make_record
from understudy.cli.main import main
from understudy.collect.recording import record as record_episodes
from understudy.core.errors import SettingError
from understudy.evaluation.certificates import certify
from understudy.studies import Store, Study
from understudy.studies.groups import study_records
from understudy.studies.plan import Protocol
from understudy.studies.report import certified, markdown, render
from understudy.studies.report.certified import certificate_cells
from understudy.studies.report.clips import expert_of
from understudy.studies.report.compare import COLUMNS, Side, compare_studies, csv_rows, protocol_differences
from understudy.studies.report.compare_page import GENERATOR, render_comparison
from understudy.studies.report.learners import group_by_task

HOSTILE = "</script><img src=x onerror=alert(1)>"


def side(name, records, **protocol):
    return Side(f"runs/{name}", name, Protocol(**{"seeds": 3, **protocol}), records)


def records(best=1000.0, seeds=range(3), counts=(5, 20), **named):
    return [make_record(seed=s, trajectories=n, best=best, evaluations=0, **named) for n in counts for s in seeds]


def finals(learner):
    return np.array(list(learner.curve.final.values()))


# --- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(3), range(4, 8)])
def test_a_difference_is_b_minus_a_with_students_t(seeds):
    compared = compare_studies(side("a", records()), side("b", records(1300.0, seeds)))
    assert [(pair.env, pair.a.trajectories) for pair in compared.pairs] == [
        ("HalfCheetahBulletEnv-v0", n) for n in (5, 20)
    ]
    for pair in compared.pairs:
        ours, theirs = finals(pair.b), finals(pair.a)
        paired = seeds == range(3)
        test = stats.ttest_rel(ours, theirs) if paired else stats.ttest_ind(ours, theirs, equal_var=False)
        ends = test.confidence_interval(0.95)
        assert pair.difference.paired == paired
        assert pair.difference.interval == pytest.approx((ours.mean() - theirs.mean(), ends.low, ends.high))
        assert pair.verdict == (1 if ends.low > 0 else 0)


def test_rows_that_one_study_has_are_listed_and_not_compared():
    a = [*records(counts=(5,)), *records(counts=(5,), algorithm="gail"), *records(counts=(5,), env="Elsewhere")]
    compared = compare_studies(side("a", a), side("b", records(counts=(5, 10))))
    assert [(pair.a.label, pair.a.trajectories) for pair in compared.pairs] == [("adril", 5)]
    found = {(one.env, one.learner.label, one.learner.trajectories, one.only_in) for one in compared.singles}
    here = "HalfCheetahBulletEnv-v0"
    assert found == {(here, "gail", 5, "A"), ("Elsewhere", "adril", 5, "A"), (here, "adril", 10, "B")}


def test_different_protocols_settings_and_versions_are_named():
    ours, theirs = records(counts=(5,)), records(counts=(5,), label="adril", settings={"lr": 1e-4})
    for one in theirs:
        one["provenance"] = {**one["provenance"], "versions": {"understudy": "0.2.0", "jax": "0.11.2"}}
    compared = compare_studies(side("a", ours), side("b", theirs, eval_episodes=20))
    named = protocol_differences(compared)
    assert "eval_episodes 10 → 20" in named
    assert "understudy 0.2.0" in named
    assert compared.pairs[0].changed == "lr 0.0003 → 0.0001"
    same = compare_studies(side("a", ours), side("b", ours))
    assert (protocol_differences(same), same.pairs[0].changed, same.pairs[0].verdict) == ("", "", 0)


def test_studies_without_a_common_task_or_algorithm_raise():
    a = side("a", records())
    with pytest.raises(
        SettingError, match=r"'runs/a' has the tasks HalfCheetah.*, 'runs/b' has Elsewhere: none is in both"
    ):
        compare_studies(a, side("b", records(env="Elsewhere")))
    with pytest.raises(SettingError, match=r"no algorithm with the same label and number of trajectories: .*gail"):
        compare_studies(a, side("b", records(algorithm="gail")))


def test_single_seeds_have_a_difference_without_an_interval():
    compared = compare_studies(side("a", records(seeds=[0])), side("b", records(1200.0, seeds=[0])))
    page = render_comparison(compared, ["c"])
    assert compared.pairs[0].verdict == 0
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    assert "" in csv_rows(compared, "c", "d")[0]


def test_the_page_escapes_text_and_the_csv_has_its_columns():
    hostile = [records(label=HOSTILE, env=HOSTILE), records(1300.0, label=HOSTILE, env=HOSTILE, counts=(5,))]
    compared = compare_studies(side(HOSTILE, hostile[0]), side("b", hostile[1]))
    page = render_comparison(compared, [HOSTILE])
    assert "<img" not in page
    assert GENERATOR in page
    rows = csv_rows(compared, "c", "d")
    assert [len(row) for row in rows] == 2 * [len(COLUMNS)]
    assert [row[COLUMNS.index("only_in")] for row in rows] == ["", "A"]


# --- the command ------------------------------------------------------------------------------------------------------


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["understudy", "study", "report", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def finished(folder, name, text=TEXT):
    """Write a study whose runs are all stored, without training."""
    (folder / f"{name}.toml").write_text(text)
    study, store = Study.load(folder / f"{name}.toml"), Store(folder / "runs" / name)
    store.begin(study.to_dict())
    for group in study.groups():
        for cell in group.cells:
            store.write(record(group, cell), policy(cell.seed))


@pytest.fixture
def pair(tmp_path, monkeypatch):
    finished(tmp_path, "a")
    finished(tmp_path, "b", TEXT.replace("eval_episodes = 2", "eval_episodes = 3"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command_writes_a_page_and_a_table_and_replaces_only_its_own(pair, monkeypatch, capsys):
    for _ in range(2):
        assert command(monkeypatch, "--compare", "a.toml", "runs/b") == 0
    out = pair / "out/compare-a-b"
    assert sorted(path.name for path in out.iterdir()) == ["compare.csv", "compare.html"]
    page = (out / "compare.html").read_text()
    assert "eval_episodes 2 → 3" in page
    assert "understudy study report --compare a.toml runs/b" in page
    with (out / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["algorithm"] for row in rows] == ["one", "two"]
    assert {float(row["difference"]) for row in rows} == {0.0}
    assert "On Pendulum, B returns more than A in 0 of 2 rows" in capsys.readouterr().out
    (out / "compare.html").write_text("mine")
    assert command(monkeypatch, "--compare", "a.toml", "b.toml") == 2
    assert "is not a file that this command wrote" in capsys.readouterr().err
    assert (out / "compare.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compare", "a.toml"], "--compare names a.toml: give two studies"),
        (["--compare", "a.toml", "runs/a"], "twice: give two studies"),
        (["--compare", "a.toml", "nowhere"], "no file 'nowhere'"),
        (["--compare", "a.toml", "empty"], "has no study.json"),
        (["--compare", "a.toml", "s.toml"], "runs that have not finished"),
        (["a.toml", "--compare", "a.toml", "b.toml"], "leave out one of them"),
        (["--all-clips", "--compare", "a.toml", "b.toml"], "--compare has no clips"),
        (["a.toml", "--all-clips", "--no-clips"], "exclude each other"),
        (["a.toml", "--certificates", "2"], "certificates is 2"),
        ([], "no STUDY"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(pair, monkeypatch, capsys, words, message):
    (pair / "empty").mkdir()
    make_directory(pair)
    (pair / "study").rename(pair / "runs/s")
    before = sorted(pair.rglob("*"))
    assert command(monkeypatch, *words) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(pair.rglob("*")) == before


# --- clips and the command of the report ------------------------------------------------------------------------------


def test_clips_say_whose_they_are_with_the_experts_beside_and_every_algorithm_on_request(pair, monkeypatch):
    monkeypatch.setattr("understudy.studies.report.clips.clip", lambda *given, **named: b"GIF89a")
    monkeypatch.setattr("understudy.studies.report.figures.draw", lambda *given: [])
    assert command(monkeypatch, "a.toml") == 0
    page = (pair / "runs/a/report.html").read_text()
    captions = re.findall(r"<figure class=clip>.*?<figcaption>(.*?)</figcaption>", page)
    assert captions[0] == "one, seed 0 (the best of 2 seeds): returns −155, the mean of 2 episodes"
    assert captions[1].startswith("The expert: its demonstrations return −")
    assert len(captions) == 2
    assert page.count("data:image/gif") == 2
    assert "Expert-normalised returns" in page
    assert "eval_episodes = 2" in page
    assert command(monkeypatch, "a.toml", "--all-clips") == 0
    page = (pair / "runs/a/report.html").read_text()
    assert page.count("data:image/gif") == 3
    assert "<li><code>understudy study report a.toml --all-clips</code></li>" in page


# --- certificates -----------------------------------------------------------------------------------------------------


def stored(name):
    """A finished study: its task with results, and its store."""
    study, store = Study.load(f"{name}.toml"), Store(f"runs/{name}")
    (results,) = group_by_task(study_records(study.groups(), store))
    return study.tasks[0], results, store


@pytest.mark.slow
def test_the_certificate_of_a_row_is_the_largest_bound_of_its_seeds_on_fresh_episodes(pair):
    task, results, store = stored("a")
    first = replace(results, learners=results.learners[:1])
    cells = certificate_cells(task, first, store, us.load("Pendulum"), 40)
    judges = record_episodes("Pendulum", "scripted", 40, certified.SEED, progress=False)
    found = [
        certify(
            store.load_policy(one["key"]),
            judges,
            "Pendulum",
            moments=("reward",),
            episodes=40,
            confidence=1 - 0.05 / 2,
            seed=certified.SEED,
        )[0]
        for one in results.learners[0].records
    ]
    bound, told = cells["one"]
    assert bound == f"≤ {max(one.bound for one in found):.0f} of 283"
    assert told == f"({sum(one.different for one in found)} of 2 seeds differ)"
    records = [record for learner in first.learners for record in learner.records]
    assert bound in render(records, "t", "c", certificates={"Pendulum": cells})
    assert bound in markdown(records, certificates={"Pendulum": cells})


def test_without_the_expert_the_demonstrations_that_no_run_was_given_judge(pair, capsys):
    """The expert of demonstrations from a file is not known, so the scripted one must not stand for it."""
    demos = us.load("Pendulum", episodes=4)
    demos.save(pair / "mine.npz")
    for count, enough in ((1, True), (2, False)):
        finished(pair, f"own{count}", TEXT.replace("trajectories = 1", f'trajectories = {count}\ndemos = "mine.npz"'))
        task, results, store = stored(f"own{count}")
        first = replace(results, learners=results.learners[:1])
        _, told = certificate_cells(task, first, store, demos, 10)["one"]
        assert ("seeds differ" in told) == enough
        assert ("2 demonstrations were not used to train, at least 3 are needed" in told) != enough
    assert expert_of(task) is None
