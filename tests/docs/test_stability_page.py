"""What docs/stability.md says is what its files say."""

import csv
import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import fisher_exact

import understudy as us
from understudy.algorithms.reward.moments import Side, counted, expert_side
from understudy.core.statistics import Sample
from understudy.paper import ablation, figure_studies, reward
from understudy.paper.episodes import episode
from understudy.paper.failure_summary import summed_up
from understudy.paper.reproduce import with_error
from understudy.paper.reproduce_ablation import COLUMNS
from understudy.train.imitate import HOLDOUT

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PAGE = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())
NAMES = {"HalfCheetah": "HalfCheetahBulletEnv-v0", "Ant": "AntBulletEnv-v0"}


def _alone(name):
    return ablation.without(*(other for other in ablation.RELEASED if other != name))


LEARNERS = {
    "the default" if name == "whole" else name: ("default", settings) for name, settings in ablation.PARTS.items()
}
LEARNERS["the last policy, a hot start"] = ("default", LEARNERS["the last policy"][1] | LEARNERS["a hot start"][1])
LEARNERS["none of the four"] = ("paper", ablation.without(*ablation.RELEASED))
LEARNERS |= {f"{words} alone": ("paper", _alone(name)) for name, words in ablation.RELEASED.items()}
LEARNERS["random actions and new episodes, 3 seeds"] = ("paper", ablation.TWO)
LEARNERS |= {f"without {words}": ("paper", ablation.without(name)) for name, words in ablation.RELEASED.items()}
LEARNERS["all four: the released recipe"] = ("paper", {})


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
        assert min(everywhere) >= 2179.9
        assert "every evaluation of every seed is 2179.9 or more" in PROSE
    else:
        assert f"below {int(min(late))} after 150,000" in PROSE
        assert all((sample.mean > found.expert) == (x >= 125_000) for x, sample in found.samples.items())
        falls = [found.samples[x].mean for x in range(200_000, 500_001, 25_000)]
        assert f"from {falls[0]:.0f} to {falls[-1]:.0f}" in PROSE


SHOWN = (25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000)


@pytest.mark.parametrize(("title", "count"), [("Without a part", 9), ("The four things", 19)])
def test_without_a_part_and_without_the_four(title, count):
    shown = rows(title)
    assert len(shown) == count
    for (task, learner), cells in shown.items():
        found = curve(task, learner)
        xs = [x for x in sorted(found.returns) if x <= 300_000]
        late = {x: found.returns[x] for x in xs if x >= 75_000}
        assert {len(seeds) for seeds in late.values()} == {3 if learner.endswith("3 seeds") else 5}
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
    assert len(shown) == 21
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
            beliefs = (told.belief_failed, told.belief_good, told.shown_failing, told.shown_steady)
            wanted += [str(told.early), f"{told.lost_at:.0f}", str(told.both)]
            wanted += ["" if value is None else f"{value:.2f}" for value in beliefs]
            wanted += [f"{told.payoff_failed:.2f}", f"{told.payoff_good:.2f}"]
            assert told.told_apart > 0.999
        else:
            wanted += [*[""] * 6, f"{told.shown_steady:.2f}", "", ""]
        assert cells == wanted


def test_the_means_of_two_runs():
    with (RESULTS / "adril-averaging.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))

    def own(env, seed, averaging):
        key = (env, seed, str(averaging))
        rows = [row for row in found if (row["env"], row["seed"], row["average_rounds"]) == key]
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
    shown = {
        (row["env"][:3], row["seed"], row["x"]): row["mean_return"] for row in found if row["average_rounds"] == "5"
    }
    assert f"returns {shown['Hal', '0', '112640']} after 113,000" in adril
    assert f"and {shown['Hal', '0', '128000']} at that run's end" in adril
    assert f"with another seed {shown['Hal', '1', '135680']} after 136,000" in adril
    assert f"it is at {shown['Ant', '0', '122880']} after 123,000" in adril


HOT = ("a hot start", "the last policy, a hot start")


def test_single_seeds_that_the_page_speaks_of():
    slow = curve("Ant", "the default").returns
    assert f"{min(slow[50_000]):.0f} after 50,000 steps, {min(slow[100_000]):.0f} after 100,000" in PROSE
    hot = [np.sort(curve("Ant", name).returns[300_000]) for name in HOT]
    assert f"One is at {hot[0][0]:.0f} at the end with the mean, another at {hot[1][0]:.0f} with the last" in PROSE
    assert len({int(np.argmin(curve("Ant", name).returns[300_000])) for name in HOT}) == 2
    assert f"the others are at {min(ends[1] for ends in hot):.0f} or more" in PROSE
    last = curve("HalfCheetah", "the last policy").returns
    fallen = int(np.argmin(last[125_000]))
    before, fell, after = (f"{last[x][fallen]:.0f}" for x in (100_000, 125_000, 150_000))
    assert f"a seed that has {before} before and {after} after returns {fell}" in PROSE
    default = rows("Where episodes fail, and who sees it")
    cheetah, ant = (default[task, "the default"] for task in NAMES)
    assert f"Of {cheetah[1]} episodes with 20 trajectories, after the seeds had learned, none failed" in PROSE
    assert cheetah[2] == "0"
    assert f"Of {ant[1]} episodes after the seeds had learned, {ant[2]} failed" in PROSE


def test_what_the_page_says_of_parts_that_are_missing():
    cheetah, ant = (curve(task, "labels") for task in ("HalfCheetah", "Ant"))
    known = [f"{found.samples[x].mean:.0f}" for found, x in ((ant, 25_000), (cheetah, 50_000))]
    assert f"{known[0]} on Ant after 25,000 steps and {known[1]} on HalfCheetah after 50,000" in PROSE
    ends = [f"{found.samples[300_000].mean:.0f}" for found in (ant, cheetah)]
    assert f"to {ends[0]} and to {ends[1]} at the end, where no seed of HalfCheetah is above 0" in PROSE
    assert max(cheetah.returns[300_000]) < 0
    believed = beliefs("Ant", "a hot start", 4)
    assert f"demonstrated states are worth {believed[25_000]:,.0f} after 25,000" in PROSE
    assert len({believed[x] for x in believed if x >= 50_000}) == 1  # it had been stopped
    assert curve("Ant", "a hot start").stopped == (4,)
    odds = fisher_exact([[2, 8], [0, 10]]).pvalue
    assert f"chance would have in {100 * odds:.0f} of 100 cases" in PROSE
    early = sorted(beliefs("Ant", "the default", seed)[25_000] for seed in range(5))
    assert f"believes in {early[-1]:.0f} after 25,000 steps, the others in {early[0]:.0f} to {early[-2]:.0f}" in PROSE
    (worth,) = (
        beliefs("Ant", "the default", seed, "reward_shown")[25_000] / 0.02
        for seed in range(5)
        if beliefs("Ant", "the default", seed)[25_000] == early[-1]
    )
    assert f"on the demonstrations then these come to {worth:.0f}." in PROSE
    ours, last = (curve("HalfCheetah", name) for name in ("the default", "the last policy"))
    above = [np.mean([one.samples[x].mean for x in range(200_000, 300_001, 25_000)]) for one in (ours, last)]
    assert f"the mean is above it by {above[0] - above[1]:.0f} of 2,200" in PROSE
    starts = [f"{curve('HalfCheetah', name).samples[25_000].mean:.0f}" for name in ("a hot start", "the default")]
    assert f"{starts[0]} after 25,000 steps where the default is at {starts[1]}" in PROSE


def beliefs(task, learner, seed, column="belief_shown"):
    """What a seed's critic believes of the demonstrated states, by environment steps."""
    preset, settings = LEARNERS[learner]
    return {
        int(line["x"]): float(line[column])
        for line in figure_studies.lines(RESULTS / "adril-ablation-episodes.csv", COLUMNS)
        if (line["env"], line["preset"], json.loads(line["settings"]), line["seed"])
        == (NAMES[task], preset, settings, str(seed))
    }


def test_a_smooth_f_pays_more_than_labels():
    paid = [
        np.mean([beliefs(task, "the default", seed, "reward_shown")[25_000] for seed in range(5)]) for task in NAMES
    ]
    assert f"worth {paid[0]:.2f} on HalfCheetah and {paid[1]:.2f} on Ant after 25,000 steps" in PROSE
    assert beliefs("Ant", "labels", 0, "reward_shown")[300_000] == 0.05


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
    unsteady, nothing = (curve("HalfCheetah", name) for name in ("without random actions", "none of the four"))
    few = f"{ends('HalfCheetah', 'without random actions').mean:.0f} in the mean, {bad(unsteady)} evaluations bad"
    more = f"with none of the four ({ends('HalfCheetah', 'none of the four').mean:.0f}, {bad(nothing).split()[0]})"
    assert few in PROSE
    assert more in PROSE
    two = curve("HalfCheetah", "random actions and new episodes, 3 seeds")
    late = [min(seeds) for x, seeds in two.returns.items() if x >= 75_000]
    assert (
        f"at {with_error(two.samples[50_000])} after 50,000 already, no evaluation below {min(late):.0f} from" in PROSE
    )
    assert max(two.returns) == 200_000
    played = rows("Where episodes fail, and who sees it")["HalfCheetah", "random actions and new episodes, 3 seeds"]
    assert f"and none of {played[1]} episodes failed" in PROSE
    assert played[2] == "0"
    seldom = curve("HalfCheetah", "without new episodes").returns
    assert min(min(seldom[x]) for x in range(75_000, 150_001, 25_000)) > 2100
    assert all(min(seldom[x]) < 1900 for x in range(175_000, 300_001, 25_000))
    assert f"fails in all of them ({min(map(min, seldom.values())):.0f})" in PROSE
    alone = curve("HalfCheetah", "random actions alone")
    means = [f"{alone.samples[x].mean:.0f}" for x in (75_000, 100_000)]
    assert f"{means[0]} after 75,000 steps and {means[1]} after 100,000" in PROSE
    assert f"{bad(alone)} evaluations are bad, against {bad(nothing).split()[0]} with none of the four" in PROSE
    assert f"where the recipe is at {whole.samples[50_000].mean:.0f}" in PROSE
    none, few = ends("Ant", "none of the four"), ends("Ant", "new episodes alone")
    assert f"are worse than none: {few.mean:.0f} against {none.mean:.0f}" in PROSE
    for name in ("a restarted rate alone", "random actions alone", "time limits for ends alone"):
        other = ends("Ant", name)
        assert 0 < other.mean - none.mean < 2 * np.hypot(other.standard_error, none.standard_error)
    middle = {}
    for name in ("without random actions", "without a restarted rate", "all four: the released recipe"):
        returns = curve("Ant", name).returns
        means = np.mean([returns[x] for x in range(100_000, 225_001, 25_000)], axis=0)
        middle[name] = with_error(Sample.of(means))
    assert "their means are {} and {}, the recipe's {}.".format(*middle.values()) in PROSE
    assert sum(curve("Ant", "all four: the released recipe").returns[300_000] < 0.5 * 2585) == 2
    at_first = {
        name: round(curve("HalfCheetah", name).samples[50_000].mean)
        for name, (preset, settings) in LEARNERS.items()
        if preset == "paper" and name != "new episodes alone"
    }
    slow = [x for name, x in at_first.items() if LEARNERS[name][1].get("restart_lr_schedule", True)]
    quick = [x for name, x in at_first.items() if not LEARNERS[name][1].get("restart_lr_schedule", True)]
    assert len(slow) == 5
    assert f"at {min(slow)} to {max(slow)}, and of those" in PROSE
    assert f"all but new episodes alone at {min(quick)} to {max(quick)}" in PROSE


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
    failed = {key: row for key, row in shown.items() if row[3]}
    assert all(float(row[6]) < float(row[7]) for row in failed.values())
    none = cells["none of the four"]
    assert f"({none[6]} against {none[7]} on HalfCheetah with none of the four)" in PROSE
    labels = [row for key, row in failed.items() if key[1] not in ("the default", "a hot start")]
    little = [float(row[8]) for row in labels]
    assert f"{min(little):.2f} to {max(little):.2f} on average" in PROSE
    more = [(float(row[8]), float(row[9])) for row in labels if row[9]]
    assert sum(steady > failing for failing, steady in more) >= len(more) - 1
    assert f"up to {max(steady for _, steady in more):.2f}." in PROSE


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
        ("the last policy", '{"average_rounds": 0.0}'),
        ("the last policy, values without bounds", '{"average_rounds": 0.0, "bounded": false}'),
    ):
        samples = by_steps([row for row in lander if row["settings"] == settings])
        assert {sample.size for sample in samples.values()} == {5}
        cells = [with_error(samples[x]) if x in samples else "" for x in range(10_000, 80_001, 10_000)]
        assert f"| {name} | {' | '.join(cells)} |".replace("  ", " ") in PAGE
        first[name] = samples
    ahead = []
    for x in (50_000, 60_000, 70_000):
        mean, last = (first[name][x] for name in ("the default", "the last policy"))
        ahead.append(f"{mean.mean - last.mean:.0f} ± {np.hypot(mean.standard_error, last.standard_error):.0f}")
    assert "from 50,000 steps on, by {}, {} and {}.".format(*ahead) in PROSE
    values = read("adril-lander-values")
    largest = {
        bounded: max(float(row["q"]) for row in values if (row["seed"], row["bounded"]) == ("0", bounded))
        for bounded in ("no", "yes")
    }
    assert f"went to {largest['no']:.0f} in eight rounds" in PROSE
    assert largest["yes"] < 4
    off = []
    for averaging in (0.0, 2.0, 5.0):
        own = [
            row
            for row in read("adril-averaging-cartpole")
            if json.loads(row["settings"])["average_rounds"] == averaging
        ]
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
        ("the last policy", "default", {"average_rounds": 0.0}),
        ("labels", "default", {"kernel": "indicator"}),
        ("the released recipe", "paper", {}),
    ):
        own = [
            row for row in read("adril-pendulum") if (row["preset"], json.loads(row["settings"])) == (preset, settings)
        ]
        samples = by_steps(own)
        assert {sample.size for sample in samples.values()} == {5}
        late = [float(row["mean_return"]) for row in own if row["x_kind"] == "env_steps" and int(row["x"]) >= 5120]
        handed = Sample.of(np.array([float(row["mean_return"]) for row in own if row["x_kind"] == "final"]))
        cells = [with_error(samples[x]) for x in (2560, 5120, 7680, 10_240, 12_800, 15_360, 20_480, 25_600)]
        assert f"| {name} | {' | '.join(cells)} | {min(late):.0f} | {with_error(handed)} |" in PAGE
        found[name] = samples
    late = [sample.mean for x, sample in found["the default"].items() if x >= 5120]
    assert f"its means are between {min(late):.0f} and {max(late):.0f} from there on" in PROSE
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
    assert f"and ending paid {before.absorbing_share - whole.absorbing_share:.3f} a step." in PROSE


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
    shown = [values[x] for x in (5120, 11520, 17920, 30720, 51200)]
    assert "is {} after 5,000 steps, where α is 0.07, and falls to {}, {}, {} and {} after".format(*shown) in PROSE


def _signed(text):
    return float(text.replace("−", "-"))
