"""What docs/stability.md says is what its files say."""

import csv
import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist

import understudy as us
from understudy.algorithms.reward.moments import Side, counted, expert_side
from understudy.experiments import figure_studies, reward
from understudy.experiments.episodes import episode
from understudy.experiments.failure_summary import summed_up
from understudy.front_door import HOLDOUT
from understudy.reproduce import with_error
from understudy.reproduce_ablation import COLUMNS
from understudy.statistics import Sample

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs/results"
PAGE = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())
NAMES = {"HalfCheetah": "HalfCheetahBulletEnv-v0", "Ant": "AntBulletEnv-v0"}
FOUR = dict.fromkeys(("random_rounds", "resets", "restart_schedule", "timeouts_terminal"), False)


def _alone(name):
    return {other: off for other, off in FOUR.items() if other != name}


LEARNERS = {
    "the default": ("default", {}),
    "labels": ("default", {"kernel": "indicator"}),
    "a hot start": ("default", {"sac": {"initial_temperature": 1.0}}),
    "the last policy": ("default", {"averaging": 0.0}),
    "the last policy, a hot start": ("default", {"averaging": 0.0, "sac": {"initial_temperature": 1.0}}),
    "none of the four": ("paper", FOUR),
    "new episodes alone": ("paper", _alone("resets")),
    "random actions alone": ("paper", _alone("random_rounds")),
    "a restarted rate alone": ("paper", _alone("restart_schedule")),
    "time limits for ends alone": ("paper", _alone("timeouts_terminal")),
    "random actions and new episodes": ("paper", {"restart_schedule": False, "timeouts_terminal": False}),
    "without new episodes": ("paper", {"resets": False}),
    "without random actions": ("paper", {"random_rounds": False}),
    "without a restarted rate": ("paper", {"restart_schedule": False}),
    "without time limits for ends": ("paper", {"timeouts_terminal": False}),
    "all four: the released recipe": ("paper", {}),
}


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title):
    """A table's rows, by task and learner: an empty first cell is the one above."""
    found, task = {}, None
    for line in section(title).splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if line.startswith("| ") and set(cells[0]) != {"-"} and cells[1]:
            task = cells[0] or task
            if task in NAMES:
                found[task, cells[1]] = cells[2:]
    return found


def _lines(task, learner):
    preset, settings = LEARNERS[learner]
    return [
        line
        for line in figure_studies.lines(RESULTS / "adril-ablation.csv")
        if (line["env"], line["preset"], json.loads(line["settings"])) == (NAMES[task], preset, settings)
    ]


def curve(task, learner):
    (found,) = reward.read(_lines(task, learner))
    return found


@pytest.mark.parametrize(
    ("task", "count", "name"),
    [
        ("halfcheetah", 20, "HalfCheetah (expert 2154)"),
        ("halfcheetah", 5, "HalfCheetah, 5 trajectories"),
        ("ant", 20, "Ant (expert 2585)"),
    ],
)
def test_what_the_default_reaches(task, count, name):
    (found,) = (
        one
        for one in reward.read(figure_studies.lines(RESULTS / f"reward-{task}.csv"))
        if (one.algorithm, one.preset, one.trajectories, one.bundled) == ("adril", "default", count, False)
    )
    shown = [found.samples[1000 * x] for x in (25, 50, 75, 100, 200, 300, 400, 500)]
    cells = [*map(with_error, shown), with_error(found.last_five), f"{found.lowest:.0f}"]
    assert f"| {name} | {' | '.join(cells)} |" in PAGE
    late = [value for x, means in found.returns.items() for value in means if x > 150_000]
    if task == "halfcheetah":
        everywhere = [value for x, means in found.returns.items() for value in means if x >= 75_000]
        assert min(everywhere) >= 2179.5
    else:
        assert f"below {int(min(late))} after 150,000" in PROSE


SHOWN = (25_000, 50_000, 100_000, 200_000, 300_000)


@pytest.mark.parametrize(("title", "count"), [("Without a part", 9), ("The four things", 18)])
def test_without_a_part_and_without_the_four(title, count):
    shown = rows(title)
    assert len(shown) == count
    for (task, learner), cells in shown.items():
        found = curve(task, learner)
        xs = [x for x in sorted(found.returns) if x <= 300_000]
        late = {x: found.returns[x] for x in xs if x >= 75_000}
        assert {len(seeds) for seeds in late.values()} == {5}
        last = Sample.of(np.mean([found.returns[x] for x in xs[-5:]], axis=0)) if xs[-1] == 300_000 else None
        wanted = [with_error(found.samples.get(x)) for x in SHOWN]
        wanted += [with_error(last), f"{min(seeds.min() for seeds in late.values()):.0f}", bad(found)]
        (words,) = {line["command"] for line in _lines(task, learner)}
        steps = re.findall(r"--steps (\d+)", words) or ["500000"]  # the figure's own, where none was asked for
        cut = f", cut at {xs[-1] // 1000}k" if re.search("(lost|stopped) after", words) else ""
        assert cells[0] == f"{int(steps[0]) // 1000}k{cut}"
        assert cells[1:] == wanted


def bad(found, until=300_000):
    """Evaluations below 80% of the expert's return, of all from 75,000 steps on."""
    late = np.array([seeds for x, seeds in found.returns.items() if 75_000 <= x <= until])
    return f"{int((late < 0.8 * found.expert).sum())} of {late.size}"


def test_where_episodes_fail_and_who_sees_it():
    shown = rows("Where episodes fail, and who sees it")
    lines = figure_studies.lines(RESULTS / "adril-ablation-episodes.csv", COLUMNS)
    assert len(shown) == 20
    for (task, learner), cells in shown.items():
        preset, settings = LEARNERS[learner]
        own = [
            line
            for line in lines
            if (line["env"], line["preset"], json.loads(line["settings"])) == (NAMES[task], preset, settings)
        ]
        told = summed_up([episode(line) for line in own], float(own[0]["expert_return"]))
        wanted = [f"{told.learned} of {told.seeds}", str(told.episodes), str(told.failed)]
        if told.failed:
            beliefs = (told.belief_failed, told.belief_good, told.belief_shown, told.payoff_failed, told.payoff_good)
            wanted += [str(told.early), f"{told.lost_at:.0f}", *(f"{value:.2f}" for value in beliefs)]
            assert told.told_apart > 0.999
        assert [cell for cell in cells if cell] == wanted


def test_the_means_of_two_runs():
    with (RESULTS / "adril-averaging.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))

    def own(env, seed, averaging):
        key = (env, seed, str(averaging))
        rows = [row for row in found if (row["env"], row["seed"], row["averaging"]) == key]
        late = [row for row in rows if int(row["x"]) >= 40_000]
        means, lows = ([float(row[column]) for row in late] for column in ("mean_return", "lowest_return"))
        return (
            [f"{np.mean(means):.0f}", *(f"{x:.0f}" for x in (min(means), min(lows), means[-1]))] if late else [""] * 4
        )

    for name, averaging in (("the policy itself", 0), *((f"mean of {n} rounds", n) for n in (2, 5, 15, 40))):
        cells = [cell for seed in "01" for cell in own(NAMES["HalfCheetah"], seed, averaging)]
        assert f"| {name} | {' | '.join(cells)} |".replace("  ", " ") in PAGE
    alone, *others = (own(NAMES["Ant"], "0", averaging)[0] for averaging in (0, 2, 5, 15))
    assert f"{alone} for the policy itself, {others[0]}, {others[1]} and {others[2]} for means of 2, 5 and 15" in PROSE
    adril = " ".join((ROOT / "docs/adril.md").read_text(encoding="utf-8").split())
    shown = {(row["env"][:3], row["seed"], row["x"]): row["mean_return"] for row in found if row["averaging"] == "5"}
    assert f"returns {shown['Hal', '0', '112640']} after 113,000" in adril
    assert f"and {shown['Hal', '0', '128000']} at that run's end" in adril
    assert f"with another seed {shown['Hal', '1', '135680']} after 136,000" in adril
    assert f"it is at {shown['Ant', '0', '122880']} after 123,000" in adril


def test_single_seeds_that_the_page_speaks_of():
    slow = curve("Ant", "the default").returns
    assert f"{min(slow[50_000]):.0f} after 50,000 steps, {min(slow[100_000]):.0f} after 100,000" in PROSE
    hot = [np.sort(curve("Ant", name).returns[300_000]) for name in ("a hot start", "the last policy, a hot start")]
    assert f"{hot[0][0]:.0f} at the end with the mean, {hot[1][0]:.0f} with the last policy" in PROSE
    assert f"the others are at {min(ends[1] for ends in hot):.0f} or more" in PROSE
    last = curve("HalfCheetah", "the last policy").returns
    fallen = int(np.argmin(last[125_000]))
    before, fell, after = (f"{last[x][fallen]:.0f}" for x in (100_000, 125_000, 150_000))
    assert f"a seed that has {before} before and {after} after returns {fell}" in PROSE
    default = rows("Where episodes fail, and who sees it")
    assert f"Of {default['HalfCheetah', 'the default'][1]} episodes with 20 trajectories" in PROSE
    assert f"Of {default['Ant', 'the default'][1]} episodes since the seeds had learned, 2 failed" in PROSE


def test_what_the_page_says_of_parts_that_are_missing():
    cheetah, ant = (curve(task, "labels") for task in ("HalfCheetah", "Ant"))
    known = [f"{found.samples[x].mean:.0f}" for found, x in ((ant, 25_000), (cheetah, 50_000))]
    assert f"{known[0]} on Ant after 25,000 steps and {known[1]} on HalfCheetah after 50,000" in PROSE
    ends = [f"{found.samples[300_000].mean:.0f}" for found in (ant, cheetah)]
    assert f"to {ends[0]} and to {ends[1]} at the end, where no seed of HalfCheetah is above 0" in PROSE
    assert max(cheetah.returns[300_000]) < 0
    starts = [f"{curve('HalfCheetah', name).samples[25_000].mean:.0f}" for name in ("a hot start", "the default")]
    assert f"{starts[0]} after 25,000 steps where the default is at {starts[1]}" in PROSE


def test_what_the_page_says_of_the_four():
    def ends(task, name):
        found = curve(task, name)
        return Sample.of(np.mean([found.returns[x] for x in range(200_000, 300_001, 25_000)], axis=0))

    fewer = [
        f"{ends('HalfCheetah', f'without {name}').mean:.0f}" for name in ("a restarted rate", "time limits for ends")
    ]
    whole_name = "all four: the released recipe"
    whole = curve("HalfCheetah", whole_name)
    assert f"{fewer[0]} and {fewer[1]} without them, {ends('HalfCheetah', whole_name).mean:.0f} with them" in PROSE
    unsteady = curve("HalfCheetah", "without random actions")
    assert (
        f"{ends('HalfCheetah', 'without random actions').mean:.0f} in the mean, {bad(unsteady)} evaluations bad"
        in PROSE
    )
    seldom = curve("HalfCheetah", "without new episodes").returns
    assert min(min(seldom[x]) for x in range(75_000, 150_001, 25_000)) > 2100
    assert all(min(seldom[x]) < 1900 for x in range(175_000, 300_001, 25_000))
    assert f"fails in all of them ({min(map(min, seldom.values())):.0f})" in PROSE
    alone = curve("HalfCheetah", "random actions alone")
    means = [f"{alone.samples[x].mean:.0f}" for x in (75_000, 100_000)]
    assert f"{means[0]} after 75,000 steps and {means[1]} after 100,000" in PROSE
    nothing = bad(curve("HalfCheetah", "none of the four")).split()[0]
    assert f"{bad(alone)} evaluations are bad, against {nothing} with none of the four" in PROSE
    assert f"where the recipe is at {whole.samples[50_000].mean:.0f}" in PROSE
    none, few = ends("Ant", "none of the four"), ends("Ant", "new episodes alone")
    assert f"are worse than none: {few.mean:.0f} against {none.mean:.0f}" in PROSE
    for name in ("a restarted rate alone", "random actions alone", "time limits for ends alone"):
        other = ends("Ant", name)
        assert 0 < other.mean - none.mean < 2 * np.hypot(other.standard_error, none.standard_error)
    counts = [
        bad(curve("Ant", name), 225_000)
        for name in ("without random actions", "without a restarted rate", "all four: the released recipe")
    ]
    assert f"{counts[0].split()[0]} and {counts[1]} evaluations are bad until 225,000" in PROSE
    assert f"and {counts[2].split()[0]} of the recipe's" in PROSE


def test_what_the_page_says_of_failures():
    shown = rows("Where episodes fail, and who sees it")
    lost = {
        task: [sum(int(cells[i] or 0) for (name, _), cells in shown.items() if name == task) for i in (3, 2)]
        for task in NAMES
    }
    told = "{} of {} on HalfCheetah and {} of {} on Ant within 50 steps of the reset"
    assert told.format(*lost["HalfCheetah"], *lost["Ant"]) in PROSE
    cells = {name: shown["HalfCheetah", name] for task, name in shown if task == "HalfCheetah"}
    assert "{2} of {1} fail, {3} of them".format(*cells["new episodes alone"]) in PROSE
    assert "{2} of {1} fail".format(*cells["random actions alone"]) in PROSE
    steady = [cells[f"without {name}"] for name in ("a restarted rate", "time limits for ends")]
    assert "one of the others {2} of {1} and".format(*steady[0]) in PROSE
    assert "and {2} of {1}.".format(*steady[1]) in PROSE
    failed = {key: list(map(float, row[5:8])) for key, row in shown.items() if row[3]}
    assert {key for key, (there, others, _) in failed.items() if there >= others} == {("HalfCheetah", "labels")}
    labels = {key: own[2] for key, own in failed.items() if key[1] not in ("the default", "a hot start")}
    stable = sorted(
        value for (_, name), value in labels.items() if name[8:] in ("a restarted rate", "time limits for ends")
    )
    unstable = {key: value for key, value in labels.items() if value not in stable}
    assert f"{min(unstable.values()):.2f} to {max(unstable.values()):.2f} in the mean" in PROSE
    most = max(value for (task, _), value in unstable.items() if task == "HalfCheetah")
    assert f"on HalfCheetah {most:.2f} at most, where in the two rows that are stable it is {stable[0]:.2f}" in PROSE
    assert f"and {stable[1]:.2f}." in PROSE


def read(name):
    with (RESULTS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_steps(found):
    """Samples over seeds, by environment steps."""
    points = {}
    for row in found:
        if row["x_kind"] == "env_steps":
            points.setdefault(int(row["x"]), []).append(float(row["mean_return"]))
    return {x: Sample.of(np.array(means)) for x, means in sorted(points.items())}


def test_the_tasks_that_nothing_was_chosen_on():
    lander, first = read("adril-lander"), {}
    for name, settings in (
        ("the default", "{}"),
        ("the last policy", '{"averaging": 0.0}'),
        ("the last policy, values without bounds", '{"averaging": 0.0, "bounded": false}'),
    ):
        samples = by_steps([row for row in lander if row["settings"] == settings])
        assert {sample.size for sample in samples.values()} == {5}
        cells = [with_error(samples[x]) if x in samples else "" for x in range(10_000, 80_001, 10_000)]
        assert f"| {name} | {' | '.join(cells)} |".replace("  ", " ") in PAGE
        first[name] = samples
    ahead = [first["the default"][x].mean - first["the last policy"][x].mean for x in (50_000, 60_000, 70_000)]
    assert f"from 50,000 steps on, by {min(ahead):.0f} to {max(ahead):.0f}." in PROSE
    values = read("adril-lander-values")
    largest = {
        bounded: max(float(row["q"]) for row in values if (row["seed"], row["bounded"]) == ("0", bounded))
        for bounded in ("no", "yes")
    }
    assert f"went to {largest['no']:.0f} in eight rounds" in PROSE
    assert largest["yes"] < 4
    off = []
    for averaging in (0.0, 2.0, 5.0):
        own = [row for row in read("adril-averaging-cartpole") if json.loads(row["settings"])["averaging"] == averaging]
        late = sorted({int(row["x"]) for row in own if row["x_kind"] == "env_steps"})[-10:]
        means = [float(row["mean_return"]) for row in own if row["x_kind"] == "env_steps" and int(row["x"]) in late]
        assert len(means) == 40
        off.append(f"{np.abs(np.array(means) - 15.987).mean():.1f}")
    assert f"are {off[0]} steps off the expert's length with the last policy, {off[1]} with a mean of 2" in PROSE
    assert f"and {off[2]} with one of 5" in PROSE
    *most, last = map(with_error, by_steps(read("adril-pendulum-median")).values())
    assert f"{', '.join(most)} and {last} after 2,560" in PROSE


def test_pendulum_is_its_file():
    found = {}
    for name, preset, settings in (
        ("the default", "default", {}),
        ("the last policy", "default", {"averaging": 0.0}),
        ("labels", "default", {"kernel": "indicator"}),
        ("the released recipe", "paper", {}),
    ):
        own = [
            row for row in read("adril-pendulum") if (row["preset"], json.loads(row["settings"])) == (preset, settings)
        ]
        samples = by_steps(own)
        assert {sample.size for sample in samples.values()} == {5}
        late = [float(row["mean_return"]) for row in own if row["x_kind"] == "env_steps" and int(row["x"]) >= 5120]
        handed = Sample.of(np.array([float(row["mean_return"]) for row in own if row["x_kind"] == "handed_over"]))
        cells = [with_error(samples[x]) for x in (2560, 5120, 7680, 10_240, 12_800, 15_360, 20_480, 25_600)]
        assert f"| {name} | {' | '.join(cells)} | {min(late):.0f} | {with_error(handed)} |" in PAGE
        found[name] = samples
    assert all(abs(sample.mean + 145) < 45 for x, sample in found["the default"].items() if x >= 5120)
    assert found["labels"][25_600].mean < 3 * found["labels"][5120].mean


def test_what_the_page_says_of_the_bundled_demonstrations():
    swings = us.load("Pendulum", episodes=20)
    obs = swings.observations.astype(float)
    points = np.concatenate([(obs - obs.mean(0)) / (obs.std(0) + 1e-3), swings.actions / 2], axis=1)
    apart = pdist(points)
    apart = apart[apart > 0]
    median, spread = np.median(apart), np.sqrt(np.mean(apart**2))
    assert f"has a median of {median:.2f} where the steps spread over {spread:.1f}" in PROSE
    landings = us.load("LunarLander-v3")
    kept, aside = (part.of(0) for part in landings.split([20], HOLDOUT))
    horizon = jnp.asarray(landings.spec.horizon)
    seen, whole = counted(kept.steps, kept.mask, horizon), expert_side(kept, aside, horizon)
    before = Side(seen.steps, 20.0, seen.absorbed / seen.episodes * 20)
    assert f"and ending paid {before.absorbed_share - whole.absorbed_share:.3f} a step." in PROSE


def test_the_first_look_at_stability_is_its_file():
    with (RESULTS / "adril-first-look.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["x_kind"] == "env_steps"]
    few = [round(float(row["mean_return"])) for row in rows if row["trajectories"] == "5"]
    assert f"returned {few[0]}, {few[1]}, {few[2]} and {few[3]} after 25, 50, 75 and 100" in PROSE
    of_bundled = {
        (row["settings"], int(row["x"])): round(float(row["mean_return"]))
        for row in rows
        if row["demonstrations"].startswith("bundled")
    }
    hot = '{"kernel": "features", "sac": {"initial_temperature": 1.0}}'
    cool = [of_bundled["{}", x] for x in (25_000, 50_000)]
    plain = [of_bundled[hot, x] for x in (25_000, 50_000, 75_000, 100_000)]
    assert f"{cool[0]} and {cool[1]} after 25 and 50 thousand steps, against {plain[0]} and {plain[1]}" in PROSE
    assert f"went to {plain[2]} and {plain[3]} after 75 and 100" in PROSE
    rows = [row for row in rows if row["trajectories"] == "20" and not row["demonstrations"].startswith("bundled")]
    rows = [row for row in rows if "balanced" not in row["settings"] and "energy" not in row["settings"]]
    told = {
        '{"kernel": "features", "sac": {"initial_temperature": 1.0}}': "smooth f, SAC as it comes",
        '{"kernel": "indicator"}': "labels, cool start",
        "{}": "smooth f, cool start",
    }
    learners = dict.fromkeys((row["env"], row["settings"]) for row in rows)
    assert len(learners) == 4
    for env, settings in learners:
        line = next(
            x for x in section("A first look").splitlines() if x.startswith(f"| {env[:3]}") and told[settings] in x
        )
        cells = [cell.strip() for cell in line.split("|")[3:-1]]
        own = {int(row["x"]): row for row in rows if (row["env"], row["settings"]) == (env, settings)}
        for x, cell in zip(range(25_000, 150_001, 25_000), cells, strict=True):
            known = own.get(x)
            shown = "" if known is None else f"{float(known['mean_return']):.0f} ± {float(known['std_return']):.0f}"
            assert cell == shown


def test_the_collapse_is_its_file():
    with (RESULTS / "adril-collapse.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def span(values):
        ends = sorted({f"{value:.1f}".replace("-", "−") for value in (min(values), max(values))}, key=_signed)
        return " to ".join(ends)

    for number in "123456":
        own = [row for row in rows if row["episode"] == number and int(row["t"]) >= 100]
        belief, worth = (span([float(row[name]) for row in own]) for name in ("belief", "worth"))
        line = next(
            x
            for x in section("What a collapse looks like").splitlines()
            if x.startswith((f"| {number} | ", f"| {number},"))
        )
        assert line.endswith(f"| {float(own[0]['episode_return']):.0f} | {belief} | {worth} |")
    with (RESULTS / "adril-collapse-values.csv").open(newline="", encoding="utf-8") as file:
        values = {int(row["env_steps"]): round(float(row["q"])) for row in csv.DictReader(file)}
    assert [values[x] for x in (5120, 11520, 17920, 30720, 51200)] == [76, 33, 22, 15, 9]


def _signed(text):
    return float(text.replace("−", "-"))
