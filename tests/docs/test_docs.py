"""What the documents show is what happens."""

import csv
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main as cli
from understudy.core.statistics import Sample, interval
from understudy.paper import figure_studies, published, reward
from understudy.paper.reproduce import with_error
from understudy.studies import Entry, Hardware, Protocol, Study, Task

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
small_bc = us.bc


def tiny(**settings):
    return small_bc(**{**settings, "rounds": 2, "steps": 5, "hidden": (8,)})


def test_the_readmes_python_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(us, "bc", tiny)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["action"].shape == (1,)
    np.testing.assert_array_equal(
        names["policy"](names["demos"].observations), names["result"].policy(names["demos"].observations)
    )
    assert capsys.readouterr().out.count("finished") == 5


def test_the_readmes_commands_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    understudy ((?:train|evaluate|theory).*)$", README, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        words = shlex.split(command)
        if words[0] == "theory":
            words += ["--mdps", "50"]
        if words[:2] == ["train", "adril"]:
            words += ["--sac.hidden", "8", "--sac.gradient-steps", "2", "--round-steps", "64"]
        elif words[0] == "train":
            words += ["--steps", "5"]
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code


def test_every_link_leads_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readmes_numbers_are_those_that_were_measured():
    rows = list(csv.DictReader((ROOT / "docs/results/demo.csv").open(encoding="utf-8")))
    assert len(rows) == 8
    for row in rows:
        half = (float(row["gap_high"]) - float(row["gap_low"])) / 2
        line = next(
            line
            for line in README.splitlines()
            if line.startswith(f"| {row['task']} | {row['algorithm']} | {row['demonstrations']} |")
        )
        mean, reach = (float(x) for x in line.split("|")[-2].split("±"))
        assert mean == pytest.approx(float(row["gap_mean"]), abs=0.06)
        assert reach == pytest.approx(half, abs=0.06)
    speed = list(csv.DictReader((ROOT / "docs/results/bc-speed.csv").open(encoding="utf-8")))
    assert [row["ratio"] for row in speed if row["ratio"] not in README] == []
    start = list(csv.DictReader((ROOT / "docs/results/startup.csv").open(encoding="utf-8")))
    assert f"takes {float(start[1]['seconds']):.1f} s" in README


def test_the_table_of_behavioral_cloning_is_its_results():
    rows = list(csv.DictReader((ROOT / "docs/results/bc.csv").open(encoding="utf-8")))
    page = (ROOT / "docs/bc.md").read_text(encoding="utf-8")
    for env in ("HalfCheetahBulletEnv-v0", "AntBulletEnv-v0"):
        cells = []
        for count in ("5", "10", "15", "20", "25"):
            means = np.array([float(row["mean_return"]) for row in rows if row["env"] == env and row["x"] == count])
            assert len(means) == 5
            cells.append(f"{means.mean():.0f} ± {means.std(ddof=1) / np.sqrt(5):.0f}")
        assert " | ".join(cells) in page


def test_the_table_of_the_offline_figure_is_its_results():
    page = (ROOT / "docs/advil.md").read_text(encoding="utf-8")
    names = {
        ("advil", "default"): "`us.advil()`",
        ("bc", "default"): "`us.bc()`",
        ("valuedice", "default"): "`us.valuedice()`",
        ("advil", "released"): "preset `released`",
    }
    for task in ("halfcheetah", "ant"):
        rows = list(csv.DictReader((ROOT / f"docs/results/off-q-{task}.csv").open(encoding="utf-8")))
        assert {(row["algorithm"], row["preset"]) for row in rows} == set(names)
        for key, name in names.items():
            cells = []
            for count in ("5", "10", "15", "20", "25"):
                means = np.array(
                    [float(r["mean_return"]) for r in rows if (r["algorithm"], r["preset"], r["x"]) == (*key, count)]
                )
                assert len(means) == 5
                cells.append(f"{means.mean():.0f} ± {means.std(ddof=1) / np.sqrt(5):.0f}")
            assert f"| {name} | {' | '.join(cells)} |" in page
        held_out = list(csv.DictReader((ROOT / f"docs/results/off-q-payoffs-{task}.csv").open(encoding="utf-8")))
        for count in ("5", "10", "15", "20"):
            chosen = [row for row in held_out if (row["learner"], row["trajectories"]) == ("advil", count)]
            together, alone = (
                np.mean([float(row[column]) for row in chosen]) for column in ("payoff_1e4", "members_payoff_1e4")
            )
            assert together < alone
            assert f"{together:.2f} ({alone:.2f})" in page


def test_the_table_of_settings_is_their_results():
    found = {}
    for task in ("halfcheetah", "ant"):
        for row in csv.DictReader((ROOT / f"docs/results/off-q-settings-{task}.csv").open(encoding="utf-8")):
            cell = found.setdefault((row["algorithm"], row["setting"]), {}).setdefault(task, [])
            cell.append((float(row["held_out_payoff"]), float(row["mean_return"])))
    page = (ROOT / "docs/advil.md").read_text(encoding="utf-8")
    for (algorithm, setting), tasks in found.items():
        cells = []
        for numbers in map(np.array, tasks.values()):
            assert len(numbers) == 5
            payoff, score = numbers.mean(axis=0)
            error = numbers[:, 1].std(ddof=1) / np.sqrt(5)
            cells += [f"{1e4 * payoff:.1f}", f"{score:.0f} ± {error:.0f}"]
        assert f"| {algorithm} | {setting} | {' | '.join(cells)} |" in page


def test_the_speed_of_off_q_steps_is_what_was_measured():
    page = (ROOT / "docs/advil.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader((ROOT / "docs/results/off-q-speed.csv").open(encoding="utf-8")))
    assert len(rows) >= 6
    for row in rows:
        name = row["what"].replace(", one run", "")
        ratio = "" if row["ratio"] == "1" else f"{row['ratio']} "
        digits = 1 if "cores" in row["machine"] else 2
        assert f"| {name} | {float(row['ms_a_step']):.{digits}f} | {ratio}|" in page


def test_the_speed_of_an_on_q_round_is_what_was_measured():
    page = (ROOT / "docs/daequil.md").read_text(encoding="utf-8")
    rows = _rows("on-q-speed.csv")
    assert len(rows) == 4
    for row in rows:
        ratio = "" if row["ratio"] == "1" else f"{row['ratio']} "
        assert f"| {row['what']} | {float(row['ms_a_round']):.0f} | {ratio}|" in page


def test_how_soon_advil_is_as_good_as_valuedice_is_what_was_measured():
    page = (ROOT / "docs/advil.md").read_text(encoding="utf-8")
    for task in ("halfcheetah", "ant"):
        rows = {row["learner"]: row for row in _rows(f"off-q-compute-{task}.csv")}
        for name in ("advil", "valuedice"):
            cells = [rows[name][column] for column in ("steps", "flop", "seconds_of_25_runs")]
            assert f"| `us.{name}()` | {' | '.join(cells)} |" in page
        assert float(rows["valuedice"]["flop"]) > 10 * float(rows["advil"]["flop"])
        end = _mean(_rows(f"off-q-training-{task}-valuedice.csv"), "500000")
        assert float(rows["advil"]["goal"]) == pytest.approx(0.9 * end, abs=0.1)


def test_what_the_collapse_watch_does_is_what_was_measured():
    page = (ROOT / "docs/advil.md").read_text(encoding="utf-8")
    for task, name in (("halfcheetah", "HalfCheetah"), ("ant", "Ant")):
        rows = _rows(f"off-q-collapse-{task}.csv")
        steps = [row for row in rows if row["x_kind"] == "steps"]
        best = [max(float(r["mean_return"]) for r in steps if r["seed"] == str(seed)) for seed in range(5)]
        handed = [float(row["mean_return"]) for row in rows if row["x_kind"] != "steps"]
        assert len(handed) in (0, 5)
        end = _mean(steps, "500000")
        cells = [_mean(steps, "50000"), _mean(steps, "100000"), end, np.mean(best), np.mean(handed) if handed else end]
        assert f"| {name} | {' | '.join(f'{cell:.0f}' for cell in cells)} (it " in page


def _rows(name):
    with (ROOT / "docs/results" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _mean(rows, x):
    """Over the seeds, with 10 trajectories, at a step."""
    found = [float(row["mean_return"]) for row in rows if (row["x"], row["trajectories"]) == (x, "10")]
    assert len(found) == 5
    return np.mean(found)


def test_the_lengths_on_cartpole_are_what_was_measured():
    page = (ROOT / "docs/absorbing.md").read_text(encoding="utf-8")
    rows = _rows("survival.csv")
    (expert,) = (row for row in rows if row["algorithm"] == "expert")
    assert f"after {float(expert['mean_return']):.1f} steps" in page
    learners = dict.fromkeys((row["algorithm"], row["settings"]) for row in rows if row is not expert)
    assert len(learners) == 8
    off = {}
    for algorithm, settings in learners:
        mine = [row for row in rows if (row["algorithm"], row["settings"]) == (algorithm, settings)]
        means = np.array([_numbers(mine, "env_steps", x) for x in range(1024, 20481, 1024)])
        assert means.shape == (20, 4)
        late, handed = Sample.of(means[-5:].mean(axis=0)), Sample.of(_numbers(mine, "final", 20480))
        chosen = json.loads(settings)
        labels = chosen.get("kernel") == "indicator"
        name = f"{algorithm}{', labels' * labels}{', balanced' * (labels and chosen['balanced'])}"
        after = "an absorbing state" if chosen["absorbing"] else "nothing"
        cells = [f"{late.mean:.1f} ± {late.standard_error:.1f}", f"{means.max():.1f}"]
        cells.append(f"{handed.mean:.1f} ± {handed.standard_error:.1f}")
        assert f"| {name} | {after} | {' | '.join(cells)} |" in page
        if name == "sqil":
            assert cells[0] in (ROOT / "docs/sqil.md").read_text(encoding="utf-8")
        off[name, chosen["absorbing"]] = f"{np.abs(means[-10:] - float(expert['mean_return'])).mean():.1f}"
    prose = " ".join(page.split())
    assert f"are {off['adril, labels', True]} steps off the expert on average with absorbing" in prose
    assert f"and {off['adril, labels', False]} without." in prose
    assert f"are {off['adril', False]} steps off on average" in prose
    assert f"are {off['adril', True]} steps off." in prose


MOMENTS = [
    ("reward-halfcheetah", "adril", "default", 20, False, "HalfCheetah, the default"),
    ("reward-halfcheetah", "adril", "default", 5, False, "HalfCheetah, the default, 5 trajectories"),
    ("reward-ant", "adril", "default", 20, False, "Ant, the default"),
    ("reward-halfcheetah", "adril", "paper", 20, False, "HalfCheetah"),
    ("reward-halfcheetah", "adril", "paper", 5, False, "HalfCheetah, 5 trajectories"),
    ("reward-halfcheetah", "adril", "paper", 20, True, "HalfCheetah, bundled"),
    ("reward-ant", "adril", "paper", 20, False, "Ant"),
    ("reward-ant", "adril", "paper", 5, False, "Ant, 5 trajectories"),
    ("reward-ant", "adril", "paper", 20, True, "Ant, bundled"),
    ("reward-ant", "adril", "paper-balanced", 20, False, "Ant, balanced"),
    ("balanced", "adril", "paper-balanced", 20, True, "Ant, balanced, bundled"),
    ("reward-halfcheetah", "sqil", "paper", 5, False, "HalfCheetah, 5 trajectories"),
    ("reward-halfcheetah", "sqil", "paper", 20, False, "HalfCheetah, 20 trajectories"),
    ("reward-halfcheetah", "sqil", "paper", 5, True, "HalfCheetah, bundled"),
    ("reward-ant", "sqil", "paper", 5, False, "Ant, 5 trajectories"),
    ("reward-ant", "sqil", "paper", 5, True, "Ant, bundled"),
    ("reward-halfcheetah", "gail", "paper", 5, False, "HalfCheetah, `paper`"),
    ("reward-halfcheetah", "gail", "paper", 5, True, "HalfCheetah, `paper`, bundled"),
    ("reward-halfcheetah", "gail", "sac", 5, False, "HalfCheetah, `sac`"),
    ("reward-ant", "gail", "paper", 5, False, "Ant, `paper`"),
    ("reward-ant", "gail", "paper", 5, True, "Ant, `paper`, bundled"),
    ("reward-ant", "gail", "sac", 5, False, "Ant, `sac`"),
]
"""The rows of the pages of `adril`, `sqil` and `gail`: file, algorithm, preset, trajectories, bundled, first cell."""


@pytest.mark.parametrize(("file", "algorithm", "preset", "count", "bundled", "name"), MOMENTS)
def test_the_tables_of_reward_moments_are_their_results(file, algorithm, preset, count, bundled, name):
    text = (ROOT / f"docs/{algorithm}.md").read_text(encoding="utf-8")
    lines = figure_studies.lines(ROOT / f"docs/results/{file}.csv")
    found = reward.read(lines)
    key = (algorithm, preset, count, bundled)
    at = [(c.algorithm, c.preset, c.trajectories, c.bundled) for c in found].index(key)
    curve = found[at]
    assert {len(seeds) for seeds in curve.returns.values()} == {5}
    shown = [curve.samples[1000 * x] for x in (25, 50, 75, 100, 200, 300, 400, 500)]
    cells = [*map(with_error, shown), with_error(curve.last_five), f"{curve.lowest:.0f}"]
    assert f"| {name} | ours | {' | '.join(cells)} |" in text
    if curve.papers:
        theirs = published.reward(lines[0]["env"], curve.published)
        cells = [with_error(theirs[1000 * x]) for x in (25, 50, 75, 100, 200, 300, 400, 475)]
        assert f"| | published | {' | '.join(cells)} |" in text
    assert with_error(curve.handed_over) in " ".join(text.split())


def test_what_state_dependent_exploration_does_is_its_file():
    text = (ROOT / "docs/experts.md").read_text(encoding="utf-8")
    with (ROOT / "docs/results/exploration.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for sde, name in (("False", "new noise in each step"), ("True", "state-dependent noise")):
        own = [line for line in lines if line["sde"] == sde]
        assert len(own) == 5
        cells = [
            with_error(Sample.of(np.array([float(line[column]) for line in own])), digits)
            for column, digits in (("return", 1), ("shake", 3), ("shake_without_chance", 3))
        ]
        assert f"| {name} | {' | '.join(cells)} |" in text


def test_how_often_f_moves_is_its_file():
    text = (ROOT / "docs/adril.md").read_text(encoding="utf-8")
    curves = reward.read(figure_studies.lines(ROOT / "docs/results/f-frequency.csv"))
    means = {}
    for curve in curves:
        steps = curve.settings.get("round_steps", 1250)
        known = {x: seeds for x, seeds in curve.returns.items() if 100_000 <= x <= 350_000}
        assert {len(seeds) for seeds in known.values()} == {5}
        late = Sample.of(np.mean([seeds for x, seeds in known.items() if x >= 150_000], axis=0))
        bad = sum(int((seeds < 0.8 * curve.expert).sum()) for seeds in known.values())
        shown = [curve.samples.get(1000 * x) for x in (50, 75, 100, 150, 200, 250, 300, 350)]
        cells = [f"{steps:,}", *map(with_error, shown), with_error(late), f"{min(map(min, known.values())):.0f}"]
        cells += [f"{bad} of {5 * len(known)}", f"{max(curve.returns) // 1000}k"]
        assert f"| {' | '.join(cells)} |".replace("|  |", "| |") in text
        means[steps] = late.mean
    assert sorted(means) == [1250, 2500, 5000, 12500, 25000, 50000]
    assert sorted(means.values(), reverse=True) == [means[steps] for steps in sorted(means)]  # without exception


def test_every_result_of_reward_moments_is_on_its_page():
    measured = set()
    for file in ("reward-halfcheetah", "reward-ant", "balanced"):
        lines = figure_studies.lines(ROOT / f"docs/results/{file}.csv")
        measured |= {(lines[0]["env"], c.algorithm, c.preset, c.trajectories, c.bundled) for c in reward.read(lines)}
    assert len(measured) == len(MOMENTS)
    for algorithm in ("adril", "sqil", "gail"):
        shown = (ROOT / f"docs/{algorithm}.md").read_text(encoding="utf-8").count(" | ours | ")
        assert shown == sum(row[1] == algorithm for row in MOMENTS)


def test_the_table_of_five_trajectories_each_is_its_results():
    page = (ROOT / "docs/gail.md").read_text(encoding="utf-8")
    curves = [reward.read(figure_studies.lines(ROOT / f"docs/results/reward-{task}.csv")) for task in reward.TASKS]
    for algorithm, preset in (("gail", "sac"), ("adril", "paper"), ("sqil", "paper"), ("gail", "paper")):
        key = (algorithm, preset, 5, False)
        ends = [
            with_error(curve.last_five)
            for found in curves
            for curve in found
            if (curve.algorithm, curve.preset, curve.trajectories, curve.bundled) == key
        ]
        assert f"| `{algorithm}`, preset `{preset}` | {' | '.join(ends)} |" in page


@pytest.mark.parametrize(("env", "name"), [("HalfCheetahBulletEnv-v0", "HalfCheetah"), ("AntBulletEnv-v0", "Ant")])
def test_the_bundled_actions_are_what_the_page_says(env, name):
    page = (ROOT / "docs/adril.md").read_text(encoding="utf-8")
    demos = us.load(env)
    acts = demos.actions.astype(float).reshape(demos.episodes, -1, demos.actions.shape[-1])
    sizes, changes = np.abs(acts), np.abs(np.diff(acts, axis=1))
    cells = [f"{sizes.max():.3f}", f"{(sizes > 0.95).mean():.1%}", f"{(sizes > 0.9641).mean():.1%}"]
    cells += [f"{changes.mean():.3f}", f"{(changes > 1).mean():.1%}"]
    assert f"| {name}, bundled | {' | '.join(cells)} |" in page


def test_the_clones_of_bundled_experts_are_what_the_pages_say():
    rows = [row for row in _rows("bc-table.csv") if row["demonstrations"].startswith("bundled@")]
    for env in ("HalfCheetahBulletEnv-v0", "AntBulletEnv-v0"):
        means = [float(row["mean_return"]) for row in rows if row["env"] == env]
        assert len(means) == 5
        for page in ("adril", "bc", "experts"):
            assert with_error(Sample.of(means)) in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


def test_the_speed_of_sac_and_of_the_loop_is_what_was_measured():
    page = (ROOT / "docs/adril.md").read_text(encoding="utf-8")
    for row in csv.DictReader((ROOT / "docs/results/sac-speed.csv").open(encoding="utf-8")):
        if "for each run" in row["what"]:  # on the page in the line above it
            continue
        ratio = "" if row["ratio"] == "1" else row["ratio"]
        line = next(x for x in page.splitlines() if row["what"] in x and f"| {row['ms_a_step']} |" in x)
        assert ratio in line
    for row in csv.DictReader((ROOT / "docs/results/reward-speed.csv").open(encoding="utf-8")):
        shown = [row[name] for name in ("steps_a_second", "wall_ms", "environment_ms", "acting_ms")]
        shown[0] = f"{float(shown[0]):.1f}"
        assert f"| {row['runs']} | {row['staleness']} | {' | '.join(shown)} |" in page
    (alone,) = csv.DictReader((ROOT / "docs/results/reward-alone.csv").open(encoding="utf-8"))
    assert f"{alone['seconds']} s from the command to the figure" in page


def test_every_algorithm_has_a_page():
    for name in us.ALGORITHMS:
        page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
        assert f"`us.{name}()`" in page
        assert "## When to use it" in page


def test_every_algorithm_is_in_the_readmes_taxonomy():
    table = README[README.index("## The taxonomy") :]
    for name in us.ALGORITHMS:
        assert f"`{name}`" in table


def test_the_theory_page_has_the_numbers_that_were_computed():
    page = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader((ROOT / "docs/results/theory/theory.csv").open(encoding="utf-8")))
    for row in rows:
        if row["part"] == "slope":
            example, moments = row["name"].split(", ", 1)
            assert f"| {example} | {moments} | {row['class']} | {float(row['value']):.3f} |" in page
        if row["part"] == "largest gap / bound":
            label = row["class"].replace("|", "\\|")
            assert f"| {row['name']} | {label} | {float(row['value']):.4f} |" in page
    last = {row["name"]: row["x"] for row in rows if row["part"] == "certificate"}
    assert len(last) == 6
    for name, iterations in last.items():
        moments, side = name.replace(" moments", "").split(", ")
        assert f"| {moments} | {side} | {iterations} |" in page
    for row in csv.DictReader((ROOT / "docs/results/tabular-speed.csv").open(encoding="utf-8")):
        assert row["ratio"] == "1" or f"| {row['ratio']} |" in page


def test_the_theory_pages_example_says_what_it_computes():
    page = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    said = []
    exec(code, {"print": said.append})
    assert [float(x) for x in said[:3]] == pytest.approx([2.0, 0.1, 0.1 / 20])
    assert said[3].met


def test_the_forests_tables_are_their_results():
    page = (ROOT / "docs/daequil.md").read_text(encoding="utf-8")
    for name, whole in (("forest.csv", True), ("forest-ablation.csv", False)):
        rows = _rows(name)
        for algorithm, preset in dict.fromkeys((row["algorithm"], row["preset"]) for row in rows):
            mine = [row for row in rows if (row["algorithm"], row["preset"]) == (algorithm, preset)]
            rounds = np.array([_numbers(mine, "round", x) for x in range(11)])
            assert rounds.shape == (11, 10)
            last, handed = rounds[-3:].mean(axis=0), np.mean(_numbers(mine, "final", 10))
            cells = [algorithm, preset, *(f"{mean:.0f}" for mean in rounds.mean(axis=1))] if whole else [preset]
            cells += [f"{last.mean():.1f}", f"{abs(last.min()):.0f}", f"{handed:.1f}"]
            assert f"| {' | '.join(cells)} |" in page


def test_the_distances_in_unseen_forests_are_what_was_measured():
    page = (ROOT / "docs/daequil.md").read_text(encoding="utf-8")
    rows = _rows("forest-unseen.csv")
    for algorithm, preset in dict.fromkeys((row["algorithm"], row["preset"]) for row in rows):
        mine = [row for row in rows if (row["algorithm"], row["preset"]) == (algorithm, preset)]
        means = [np.mean(_numbers(mine, "unseen_forest", x)) for x in range(100)]
        name = f"{algorithm}, {preset}" if preset else algorithm
        assert f"| {name} | {interval(Sample.of(means))} |" in page


def _numbers(rows, kind, x):
    return [float(row["mean_return"]) for row in rows if (row["x_kind"], row["x"]) == (kind, str(x))]


def test_the_table_of_aggrevate_is_its_results():
    page = (ROOT / "docs/aggrevate.md").read_text(encoding="utf-8")
    rows = list(csv.DictReader((ROOT / "docs/results/aggrevate-forest.csv").open(encoding="utf-8")))
    presets = {row["preset"] for row in rows}
    assert presets == {"default", "w = 0", "exploring = 1"}
    for preset in presets:
        scores = np.array(
            [[float(r["mean_return"]) for r in rows if (r["preset"], r["x"]) == (preset, str(x))] for x in range(11)]
        )
        assert scores.shape == (11, 10)
        assert f"| aggrevate | {preset} | {' | '.join(f'{mean:.0f}' for mean in scores.mean(1))} |" in page
        last = scores[-3:].mean(0)
        assert f"{last.mean():.1f} over the last three rounds, trials from {last.min():.0f} to {last.max():.0f}" in page


@pytest.mark.parametrize(
    ("page", "lines"), [("bc.md", 2), ("advil.md", 1), ("dagger.md", 1), ("daequil.md", 1), ("aggrevate.md", 1)]
)
def test_the_pages_examples_run(page, lines):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.S)
    said = []
    exec(code, {"print": lambda *words: said.append(words)})
    assert len(said) == lines


def test_the_study_pages_commands_run(monkeypatch, tmp_path, capsys):
    page = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "pendulum.toml").write_text(text.replace("rounds = 2", "rounds = 1, steps = 1"))
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    understudy (study [^#]*?) *#", page, re.MULTILINE)
    assert len(commands) == 5
    for command in commands[:3]:
        options = {"run": ["--jobs", "1"], "status": [], "report": ["--no-clips"]}[command.split()[1]]
        monkeypatch.setattr(sys, "argv", ["understudy", *shlex.split(command), *options])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
    assert "12 of 12 cells" in capsys.readouterr().out
    for file in ("study.json", "report.html", "table.md", "results.csv", "figure.png", "figure.svg"):
        assert (tmp_path / "runs/pendulum" / file).exists()


def test_the_study_page_has_every_key():
    page = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    for part in (Study, Protocol, Hardware, Task, Entry):
        for name in part.checks:
            assert f"| `{name}` |" in page
